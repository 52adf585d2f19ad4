import { LabIcon } from "@jupyterlab/ui-components";

/** Four nodes around one. */
export const clusterIcon = new LabIcon({
  name: "tfos-lab:cluster",
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16">
    <g class="jp-icon3" fill="#616161" stroke="none">
      <circle cx="8" cy="8" r="2.4"/><circle cx="3" cy="3" r="1.8"/><circle cx="13" cy="3" r="1.8"/>
      <circle cx="3" cy="13" r="1.8"/><circle cx="13" cy="13" r="1.8"/>
      <path d="M3.4 2.6l10 10-.8.8-10-10zM12.6 2.6l.8.8-10 10-.8-.8z"/>
    </g></svg>`,
});
