// Generated from tfos_lab/core/states.py: change that file, then run `python .ci/generate_states.py`.

/** @type {Record<string, {sign: string, shape: string, tone: string, ended: boolean, present: boolean, up: boolean}>} */
export const NODE_STATES = {
  waiting: { sign: "○", shape: "waiting", tone: "idle", ended: false, present: false, up: false },
  reserved: { sign: "◔", shape: "half", tone: "busy", ended: false, present: true, up: false },
  importing: { sign: "◑", shape: "half", tone: "busy", ended: false, present: true, up: false },
  starting: { sign: "◑", shape: "half", tone: "busy", ended: false, present: true, up: false },
  running: { sign: "●", shape: "running", tone: "busy", ended: false, present: true, up: true },
  serving: { sign: "●", shape: "running", tone: "busy", ended: false, present: true, up: true },
  stopping: { sign: "◌", shape: "stopping", tone: "warn", ended: false, present: true, up: false },
  done: { sign: "✓", shape: "done", tone: "good", ended: true, present: false, up: true },
  failed: { sign: "✗", shape: "broken", tone: "bad", ended: true, present: false, up: false },
  lost: { sign: "✗", shape: "broken", tone: "bad", ended: true, present: false, up: false },
  stopped: { sign: "■", shape: "stopped", tone: "idle", ended: true, present: false, up: false },
};

/** @type {Record<string, {sign: string, shape: string, tone: string, ended: boolean}>} */
export const CLUSTER_STATES = {
  launching: { sign: "○", shape: "busy", tone: "busy", ended: false },
  reserving: { sign: "◔", shape: "busy", tone: "busy", ended: false },
  starting: { sign: "◑", shape: "busy", tone: "busy", ended: false },
  running: { sign: "●", shape: "running", tone: "busy", ended: false },
  restarting: { sign: "◌", shape: "busy", tone: "warn", ended: false },
  stopping: { sign: "◌", shape: "busy", tone: "warn", ended: false },
  done: { sign: "✓", shape: "done", tone: "good", ended: true },
  failed: { sign: "✗", shape: "broken", tone: "bad", ended: true },
  stopped: { sign: "■", shape: "stopped", tone: "idle", ended: true },
  lost: { sign: "✗", shape: "broken", tone: "bad", ended: true },
};
