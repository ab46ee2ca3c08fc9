// Before page.js: what is computed from curves, without the document. A CURVE of the data is a list of columns: [x, y] is one point;
// [first x, y, least x, y, greatest x, y, last x, y, count, missing] are several. A value that is not finite is null.
"use strict";
const curves = (function () {
  const shortNumber = (value) => Number(value.toPrecision(6)).toString();
  // Of a place on the x axis: whole numbers below 1e15 are exact.
  const placeText = (value) => Math.abs(value) >= 1e5 && Math.abs(value) < 1e15 ? String(Number(value.toFixed(3))) : shortNumber(value);
  // At most eight characters, the room beside a chart.
  const tickText = (value) => {
    const size = Math.abs(value);
    return size >= 1e6 || (size > 0 && size < 1e-4) ? Number(value.toPrecision(3)).toExponential().replace("e+", "e") : shortNumber(value);
  };

  function unpack(curve) {
    return curve.map((c) => c.length === 2
      ? {x: c[0], y: c[1], x1: c[0], y1: c[1], low: c[1], lowX: c[0], high: c[1], highX: c[0], count: 1,
         missing: c[1] === null ? 1 : 0}
      : {x: c[0], y: c[1], lowX: c[2], low: c[3], highX: c[4], high: c[5], x1: c[6], y1: c[7], count: c[8], missing: c[9]});
  }

  // The column of an ordered list that holds x, or the last one before it; -1 if all are after it.
  function columnAt(columns, x) {
    let low = 0, high = columns.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (columns[middle].x <= x) low = middle + 1; else high = middle;
    }
    return low - 1;
  }
  // A value between the ends of columns; null beside one that is not finite.
  function interpolated(columns, x) {
    const at = columnAt(columns, x);
    if (at < 0) return columns[0].y;
    const c = columns[at], next = columns[at + 1];
    const [x0, y0, x1, y1] = x <= c.x1 || !next ? [c.x, c.y, c.x1, c.y1] : [c.x1, c.y1, next.x, next.y];
    if (x <= x0) return y0;
    if (x1 <= x0 || x >= x1) return y1;
    if (y0 === null || y1 === null) return null;
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0);
  }

  // The curve less that of the first run at the same iterations.
  function lessFirst(columns, first) {
    const all = [];
    for (const c of columns) {
      if (columnAt(first, c.x1) < 0 || c.x1 > first[first.length - 1].x1) continue;
      const one = c.y1, base = interpolated(first, c.x1);
      const y = one === null || base === null ? null : one - base;
      all.push({x: c.x1, y: y, x1: c.x1, y1: y, low: y, lowX: c.x1, high: y, highX: c.x1, count: 1, missing: y === null ? 1 : 0});
    }
    return all;
  }
  // Exponential moving average over iterations, corrected at the begin.
  function smoothed(columns, weight) {
    let sum = 0, norm = 0;
    return columns.map((c) => {
      if (c.y1 === null) return c;
      sum = weight * sum + (1 - weight) * c.y1;
      norm = weight * norm + (1 - weight);
      const y = sum / norm;
      return {x: c.x1, y: y, x1: c.x1, y1: y, low: y, lowX: c.x1, high: y, highX: c.x1, count: 1, missing: 0};
    });
  }

  function ticks(low, high, about) {
    const rough = (high - low) / about, power = Math.pow(10, Math.floor(Math.log10(rough))), part = rough / power;
    const step = power * (part <= 1.5 ? 1 : part <= 3.5 ? 2 : part <= 7.5 ? 5 : 10), all = [];
    for (let n = Math.ceil(low / step); n * step <= high && all.length < 30; ++n) all.push(n * step);
    return all;
  }
  function logTicks(low, high) {
    const all = [], span = Math.log10(high / low);
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)) && all.length < 40; ++e)
      for (const m of span < 2.5 ? [1, 2, 5] : [1]) {
        const value = m * Math.pow(10, e);
        if (value >= low && value <= high) all.push(value);
      }
    if (all.length > 8) return all.filter((value, i) => i % Math.ceil(all.length / 8) === 0);
    return all.length > 1 ? all : ticks(low, high, 4);
  }

  return {shortNumber, placeText, tickText, unpack, interpolated, lessFirst, smoothed, ticks, logTicks};
})();
