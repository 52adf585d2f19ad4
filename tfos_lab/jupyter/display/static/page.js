// What the page around the dashboard says: which Jupyter server it came from, and whether it is dark.

/** @returns {{baseUrl?: string, token?: string} | null} what the Jupyter page says of its server */
export function pageConfig() {
  const text = document.getElementById("jupyter-config-data")?.textContent;
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

/**
 * An address of the Jupyter server.
 * @param {string} path
 * @returns {URL | null} nothing where the page is not Jupyter's own
 */
export function serverUrl(path) {
  const base = pageConfig()?.baseUrl;
  return base ? new URL(path, new URL(base, document.location.href)) : null;
}

/** Whether Jupyter's theme is dark. */
export function isDark() {
  return document.body.dataset.jpThemeLight === "false";
}
