// How the search orders what it finds: guides before results and records of the project.
const RECORDS = /^(results\/|published|changelog|decisions|faults|release|contributing)/;

const Scorer = {
  score: ([page, , , , score]) => (RECORDS.test(page) ? score / 3 : score),

  // The rest is Sphinx's own.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
