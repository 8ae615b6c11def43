// Equation 3: phi_i <- sum over k of w_ik phi_k, plus psi_i, where the shares w_ik sum to 1.

/** A run whose page holds reports: phi of every round, and where its entries came from. */
class Propagation {
  constructor(data) {
    this.n = data.n;
    this.rounds = data.rounds;
    const graphs = data.graphs.map(arcsOf);
    const adopted = unpack(data.adopted);
    let at = 0;
    this.arcs = data.graph_of_round.map((g) => {
      const { client, member, share } = graphs[g];
      const psi = adopted.subarray(at, (at += client.length));
      return { client, member, share, psi };
    });
    this.phis = [new Float32Array(this.n ** 2)];
    for (const round of this.arcs) this.phis.push(this.next(this.phis.at(-1), round));
  }

  next(phi, { client, member, share, psi }) {
    const { n } = this;
    const sums = new Float64Array(n * n);
    for (let a = 0; a < client.length; a++) {
      const to = client[a] * n;
      const from = member[a] * n;
      for (let j = 0; j < n; j++) sums[to + j] += share[a] * phi[from + j];
      sums[to + member[a]] += psi[a];
    }
    return Float32Array.from(sums);
  }

  /** phi after round t; phi(0) is 0. */
  phi(t) {
    return this.phis[t];
  }

  row(t, i) {
    return this.phis[t].subarray(i * this.n, (i + 1) * this.n);
  }

  /**
   * What passes along each arc in round t: w_ik times the credit in k's model before it, of
   * contributor j alone unless j is null.
   */
  flows(t, j = null) {
    const { client, member, share } = this.arcs[t - 1];
    const before = range(this.n).map((k) => this.row(t - 1, k));
    const held = before.map((row) => (j === null ? sum(row) : row[j]));
    const flows = [];
    for (let a = 0; a < client.length; a++) {
      const [to, from] = [client[a], member[a]];
      if (to !== from) flows.push({ from, to, share: share[a], credit: share[a] * held[from] });
    }
    return flows;
  }

  /**
   * The members of client i's neighbourhood in round t: the share of each, what i inherited
   * through it, and what it taught i anew; of contributor j alone unless j is null.
   */
  lastHop(t, i, j) {
    const { client, member, share, psi } = this.arcs[t - 1];
    const hops = [];
    for (let a = 0; a < client.length; a++) {
      if (client[a] !== i) continue;
      const k = member[a];
      const before = this.row(t - 1, k);
      const inherited = share[a] * (j === null ? sum(before) : before[j]);
      hops.push({ k, share: share[a], inherited, fresh: j === null || j === k ? psi[a] : 0 });
    }
    return hops;
  }

  /**
   * In which rounds the credit in client i's model after round t was earned: one number a round,
   * of contributor j alone unless j is null. They sum to phi_ij, or to the row.
   *
   * Read backwards, Equation 3 tells which part of each client's earlier credit reached i.
   */
  origins(t, i, j) {
    const earned = new Array(t).fill(0);
    let reach = new Float64Array(this.n);
    reach[i] = 1;
    for (let s = t; s > 0; s--) {
      const { client, member, share, psi } = this.arcs[s - 1];
      const earlier = new Float64Array(this.n);
      for (let a = 0; a < client.length; a++) {
        const part = reach[client[a]];
        if (j === null || j === member[a]) earned[s - 1] += part * psi[a];
        earlier[member[a]] += part * share[a];
      }
      reach = earlier;
    }
    return earned;
  }

  /** psi of client i about each member it ever had: a Map from member to one value a round. */
  reports(i) {
    const series = new Map();
    this.arcs.forEach(({ client, member, psi }, s) => {
      for (let a = 0; a < client.length; a++) {
        if (client[a] !== i) continue;
        if (!series.has(member[a])) series.set(member[a], new Array(this.rounds).fill(null));
        series.get(member[a])[s] = psi[a];
      }
    });
    return series;
  }

  /** The round after which j's training first reached i's model; null if it did not. */
  since(t, i, j) {
    for (let s = 1; s <= t; s++) if (this.phis[s][i * this.n + j] !== 0) return s;
    return null;
  }
}

/** The arcs of a graph as the page holds it: members of client 0, of client 1, and so on. */
function arcsOf(graph) {
  const member = unpack(graph.member);
  const client = new Uint16Array(member.length);
  let at = 0;
  unpack(graph.count).forEach((count, i) => client.fill(i, at, (at += count)));
  return { client, member, share: unpack(graph.share) };
}

/** A run whose page holds phi of the last round alone. */
class LastRound {
  constructor(data) {
    this.n = data.n;
    this.last = unpack(data.phi);
  }

  phi() {
    return this.last;
  }

  row(_, i) {
    return this.last.subarray(i * this.n, (i + 1) * this.n);
  }
}
