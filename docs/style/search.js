// How the search orders what it finds: guides first, and of these the ones that answer most
// questions; then results and records of the project, then lists generated from the code.
const WEIGHTS = [
  [/^(methods|tutorial|running|exchange|deployment)$/, 2],
  [/^(results\/|equations|published|changelog|decisions|faults|release|contributing)/, 1 / 3],
  [/^(api\/|settings|experiments|commands|results_nc)/, 1 / 4],
];

// Sphinx's own script has declared this name, which only `var` may do again.
var Scorer = {
  score: ([page, , , , score]) =>
    WEIGHTS.reduce((scaled, [pages, weight]) => (pages.test(page) ? scaled * weight : scaled), score),

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
