// The page around the dashboard: which Jupyter server it came from, and whether it is dark.

export interface PageConfig {
  readonly baseUrl?: string;
  readonly token?: string;
}

/** What the Jupyter page says of its server; null on pages that are not Jupyter's own. */
export function pageConfig(): PageConfig | null {
  const text = document.getElementById("jupyter-config-data")?.textContent;
  try {
    return text ? (JSON.parse(text) as PageConfig) : null;
  } catch {
    return null;
  }
}

/** An address of the Jupyter server; null on pages that are not Jupyter's own. */
export function serverUrl(path: string): URL | null {
  const base = pageConfig()?.baseUrl;
  return base ? new URL(path, new URL(base, document.location.href)) : null;
}

/** Whether Jupyter's theme is dark. */
export function isDark(): boolean {
  return document.body.dataset["jpThemeLight"] === "false";
}
