// Checks Flux from stdin, a JSON list of texts: syntax, types, and signatures of the functions.
const { Flux } = require('@influxdata/flux-lsp-node');
const texts = JSON.parse(require('fs').readFileSync(0, 'utf8'));
console.log(JSON.stringify(texts.map((text) => {
  try { return new Flux(text).is_valid(); } catch (error) { return false; }
})));
