// A small table of states, as Python sends it.

const cluster = (shape, ended = false) => ({ shape, ended });
const node = (shape, { ended = false, heartbeats = false } = {}) => ({ shape, ended, heartbeats });

export const states = {
  cluster: { running: cluster("running"), done: cluster("done", true), lost: cluster("broken", true) },
  node: {
    waiting: node("waiting"),
    running: node("running", { heartbeats: true }),
    stopping: node("busy"),
    done: node("done", { ended: true }),
    lost: node("broken", { ended: true }),
  },
};
