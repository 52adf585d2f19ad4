// The states of clusters and nodes, from the table that Python sends: how each is drawn, and what follows from it.

import type { ClusterStateTraits, NodeStateTraits, States } from "./messages";

/** For a state that the table does not list, such as one of a newer kernel. */
const UNKNOWN: NodeStateTraits = { shape: "waiting", ended: false, heartbeats: false };

export class StateTable {
  constructor(private readonly states: States) {}

  cluster(name: string): ClusterStateTraits {
    return this.states.cluster[name] ?? UNKNOWN;
  }

  node(name: string): NodeStateTraits {
    return this.states.node[name] ?? UNKNOWN;
  }

  /** Names of the states, of clusters and nodes, that others follow. */
  running(): string[] {
    const all = [...Object.entries(this.states.cluster), ...Object.entries(this.states.node)];
    return [...new Set(all.filter(([, { ended }]) => !ended).map(([name]) => name))];
  }
}
