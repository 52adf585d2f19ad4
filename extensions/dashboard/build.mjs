// Bundles the dashboard into the Python package, which reads it from there: `tfos_lab/notebook/display/static`.

import { build } from "esbuild";

const outdir = "../../tfos_lab/notebook/display/static";
const common = { bundle: true, minify: true, charset: "utf8", outdir, logLevel: "warning", target: "es2022" };

// The widget, as the ES module that anywidget loads.
await build({ ...common, entryPoints: ["src/dashboard.ts"], format: "esm" });

// Scripts of saved outputs: no modules, as they stand in the page itself.
await build({ ...common, entryPoints: ["history_table", "seen_note", "tensorboard_frame"].map((name) => `src/outputs/${name}.ts`), format: "iife" });

// Style sheets of the live dashboard, of saved outputs, and of the history of runs. No target: browsers get the CSS as it is written.
await build({ ...common, target: "esnext", entryPoints: ["style/dashboard.css", "style/summary.css", "style/history.css"] });
