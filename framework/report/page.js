// After curves.js: draws the charts of a report again, so that they can be zoomed, walked by keyboard, smoothed and compared. The data, in
// the element "data": {runs: [{name, letter, curves: {KEY: CURVE}, axes: {samples|tokens|seconds: CURVE}, events: [[iteration, 1 for a failure
// or 0, title]]}], charts: [{id, title, unit, lines: [[number of the run, key, label, classes, marker]]}]}. CURVE: see curves.js.
const report = (function () {
  const {shortNumber, placeText, tickText, unpack, interpolated, lessFirst, smoothed, ticks, logTicks} = curves;
  const read = (page) => JSON.parse(page.getElementById("data").textContent);
  let data = read(document);
  const said = document.getElementById("said");
  const W = 720, H = 280, L = 70, R = 26, T = 18, B = 30;  // as in chart.cpp
  const settings = {axis: "steps", log: false, smooth: 0, difference: false, hidden: new Set()};
  let charts = [];

  const fill = (node, attributes, text) => {
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const make = (name, attributes, text) => fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, text);
  const element = (name, attributes, text) => fill(document.createElement(name), attributes, text);
  function unpackAll() {
    for (const run of data.runs) {
      for (const key in run.curves) run.curves[key] = unpack(run.curves[key]);
      for (const key in run.axes) run.axes[key] = unpack(run.axes[key]).filter((c) => c.y !== null && c.y1 !== null);
    }
  }

  const hasAxis = (run) => settings.axis === "steps" || (run.axes[settings.axis] || []).length > 0;
  // Of a run that has the chosen axis.
  const placeOf = (run, x) => settings.axis === "steps" ? x : interpolated(run.axes[settings.axis], x);

  function seriesOf(spec) {
    const all = [];
    for (const [of, key, label, look, marker] of spec.lines) {
      const run = data.runs[of];
      if (settings.hidden.has(run.letter) || !hasAxis(run)) continue;
      let columns = run.curves[key];
      if (settings.difference && data.runs.length > 1) {
        if (of === 0 || !data.runs[0].curves[key]) continue;
        columns = lessFirst(columns, data.runs[0].curves[key]);
      }
      all.push({run: run, label: label, look: look, marker: marker, columns: columns,
                smooth: settings.smooth > 0 ? smoothed(columns, settings.smooth) : null});
    }
    return all;
  }

  function rangesOf(chart, series) {
    const range = {x0: Infinity, x1: -Infinity, y0: Infinity, y1: -Infinity};
    for (const one of series)
      for (const c of one.columns) {
        const a = placeOf(one.run, c.x), b = placeOf(one.run, c.x1);
        range.x0 = Math.min(range.x0, a);
        range.x1 = Math.max(range.x1, b);
        if (chart.zoom && (b < chart.zoom[0] || a > chart.zoom[1])) continue;
        for (const y of [c.low, c.high])
          if (y !== null && (!settings.log || y > 0)) {
            range.y0 = Math.min(range.y0, y);
            range.y1 = Math.max(range.y1, y);
          }
      }
    if (!(range.x0 <= range.x1)) [range.x0, range.x1] = [0, 1];
    chart.whole = [range.x0, range.x1 > range.x0 ? range.x1 : range.x0 + 1];
    [range.x0, range.x1] = chart.zoom || chart.whole;
    if (!(range.y0 <= range.y1)) [range.y0, range.y1] = settings.log ? [1, 10] : [0, 1];
    if (settings.log) {
      if (range.y1 <= range.y0 * 1.001) { range.y0 /= 2; range.y1 *= 2; }
      const margin = Math.pow(range.y1 / range.y0, 0.05);
      range.y0 /= margin;
      range.y1 *= margin;
    } else {
      let margin = range.y1 / 20 - range.y0 / 20;
      if (!(margin > Math.abs(range.y1) * 1e-12)) margin = range.y1 === 0 ? 1 : Math.abs(range.y1) / 10;
      range.y0 = Math.max(range.y0 - margin, -8e307);
      range.y1 = Math.min(range.y1 + margin, 8e307);
    }
    range.x = (value) => L + (value - range.x0) / (range.x1 - range.x0) * (W - L - R);
    range.y = (value) => settings.log
      ? H - B - Math.log(value / range.y0) / Math.log(range.y1 / range.y0) * (H - T - B)
      : H - B - (value - range.y0) / (range.y1 - range.y0) * (H - T - B);
    range.back = (pixel) => range.x0 + (pixel - L) / (W - L - R) * (range.x1 - range.x0);
    return range;
  }

  function pathOf(one, columns, range) {
    let path = "", open = false, gaps = "";
    const drawable = (y) => y !== null && (!settings.log || y > 0);
    const add = (x, y) => {
      if (!drawable(y)) return;
      path += (open ? "L" : "M") + range.x(placeOf(one.run, x)).toFixed(1) + " " + range.y(y).toFixed(1);
      open = true;
    };
    for (const c of columns) {
      if (c.missing > 0) {
        const x = range.x(placeOf(one.run, c.x));
        gaps += "M" + (x - 3).toFixed(1) + " " + (T - 3) + "l6 6m0 -6l-6 6";
      }
      if (c.low === null) { open = false; continue; }
      add(c.x, c.y);
      if (c.count > 1) {
        const low = [c.lowX, c.low], high = [c.highX, c.high];
        for (const [x, y] of c.lowX <= c.highX ? [low, high] : [high, low]) add(x, y);
        add(c.x1, c.y1);
      }
    }
    return [path, gaps];
  }

  function drawAxes(chart, svg, range) {
    const group = make("g", {"aria-hidden": "true"});
    for (const value of settings.log ? logTicks(range.y0, range.y1) : ticks(range.y0, range.y1, 5)) {
      const y = range.y(value).toFixed(1);
      group.append(make("path", {class: "grid", d: "M" + L + " " + y + "H" + (W - R)}),
                   make("text", {class: "tick end", x: L - 6, y: y, dy: 4}, tickText(value)));
    }
    const narrow = chart.plot.clientWidth < 420;
    for (const value of ticks(range.x0, range.x1, narrow ? 3 : 6))
      group.append(make("text", {class: "tick middle", x: range.x(value).toFixed(1), y: H - 10}, placeText(value)));
    group.append(make("path", {class: "axis", d: "M" + L + " " + T + "V" + (H - B) + "H" + (W - R)}));
    svg.append(group);
  }

  function drawEvents(svg, range) {
    for (const run of data.runs) {
      if (settings.hidden.has(run.letter) || !hasAxis(run)) continue;
      for (const [iteration, failure, title] of run.events) {
        const x = placeOf(run, iteration);
        if (x < range.x0 || x > range.x1) continue;
        const mark = make("path", {class: failure ? "mark bad" : "mark plain", d: "M" + range.x(x).toFixed(1) + " " + T + "V" + (H - B)});
        mark.append(make("title", {}, title));
        svg.append(mark);
      }
    }
  }

  // In the legend: the runs that lack the chosen axis. With an id, so that an update of a served page makes no entry of a curve of it.
  function tellLeftOut(chart) {
    const legend = document.getElementById(chart.spec.id).querySelector(".legend");
    for (const old of legend.querySelectorAll(".without")) old.remove();
    const runs = new Set(chart.spec.lines.map(([of]) => data.runs[of]).filter((run) => !hasAxis(run)));
    const letters = [...runs].map((run) => run.letter).join(", ");
    if (letters) legend.append(element("li", {id: chart.spec.id + "-without", class: "without"}, letters + ": not drawn, without " + settings.axis));
  }

  function draw(chart) {
    const svg = make("svg", {viewBox: "0 0 " + W + " " + H, "aria-hidden": "true"});
    const series = chart.series = seriesOf(chart.spec), range = chart.range = rangesOf(chart, series);
    drawAxes(chart, svg, range);
    const clip = chart.spec.id + "-clip", area = make("g", {"clip-path": "url(#" + clip + ")"});
    const shape = make("clipPath", {id: clip});
    shape.append(make("rect", {x: L - 4, y: 0, width: W - L - R + 8, height: H - B + 4}));
    svg.append(shape);
    drawEvents(area, range);
    for (const [number, one] of series.entries()) {
      const [raw, gaps] = pathOf(one, one.columns, range);
      area.append(make("path", {class: "line " + one.look + (one.smooth ? " raw" : ""), d: raw}));
      if (one.smooth) area.append(make("path", {class: "line " + one.look, d: pathOf(one, one.smooth, range)[0]}));
      if (gaps) area.append(make("path", {class: "gap " + one.look, d: gaps}));
      drawMarkers(area, one, number, range);
    }
    svg.append(area);
    chart.plot.querySelector("svg").replaceWith(svg);
    chart.svg = svg;
    tellLeftOut(chart);
    drawCursor(chart);
  }

  // A marker on each of few points, else on some of many, so that lines are told apart without colour.
  function drawMarkers(area, one, number, range) {
    const seen = one.columns.filter((c) => {
      const x = placeOf(one.run, c.x1);
      return c.y1 !== null && (!settings.log || c.y1 > 0) && x >= range.x0 && x <= range.x1;
    });
    const every = seen.length <= 30 ? 1 : Math.ceil(seen.length / 8);
    for (let i = every === 1 ? 0 : (number * 3) % every; i < seen.length; i += every)
      area.append(make("text", {class: "tick middle dots " + one.look,
                                x: range.x(placeOf(one.run, seen[i].x1)).toFixed(1), y: (range.y(seen[i].y1) + 3.5).toFixed(1)},
                       one.marker));
  }

  // What a column says: the exact value of one point, else its extremes.
  function words(c) {
    if (c.count === 1) return c.y1 === null ? "not finite" : String(c.y1);
    if (c.low === null) return "not finite (" + c.count + " steps)";
    return String(c.low) + " to " + String(c.high) + ", last " + (c.y1 === null ? "not finite" : String(c.y1)) +
      (c.missing ? ", " + c.missing + " not finite" : "");
  }
  function distanceTo(one, c, place) {
    const a = placeOf(one.run, c.x), b = placeOf(one.run, c.x1);
    return place < a ? a - place : place > b ? place - b : 0;
  }
  function nearest(one, place) {
    let best = -1, distance = Infinity;
    one.columns.forEach((c, i) => {
      const d = distanceTo(one, c, place);
      if (d < distance) [best, distance] = [i, d];
    });
    return best;
  }
  const stepsOf = (c) => c.x === c.x1 ? "iteration " + c.x : "iterations " + c.x + " to " + c.x1;

  // The cursor: {line, point} of the series that is walked.
  function drawCursor(chart) {
    for (const old of chart.svg.querySelectorAll(".cursor")) old.remove();
    const at = chart.cursor, one = at && chart.series[at.line], c = one && one.columns[at.point];
    if (!c) { chart.tip.hidden = true; return; }
    const place = placeOf(one.run, c.x1), x = chart.range.x(place);
    chart.svg.append(make("path", {class: "cursor", d: "M" + x + " " + T + "V" + (H - B)}));
    if (c.y1 !== null && (!settings.log || c.y1 > 0))
      chart.svg.append(make("circle", {class: "cursor", cx: x, cy: chart.range.y(c.y1), r: 5}));
    const lines = [settings.axis === "steps" ? stepsOf(c) : stepsOf(c) + ", " + settings.axis + " " + placeText(place)];
    for (const other of chart.series) {
      const column = other === one ? c : other.columns[nearest(other, place)];
      // Of a curve that has nothing near, such as the loss at the end, nothing is said.
      if (!column || (other !== one && distanceTo(other, column, place) > (chart.range.x1 - chart.range.x0) / 10)) continue;
      const exact = column.x === c.x && column.x1 === c.x1 ? "" : " (" + stepsOf(column) + ")";
      const average = other.smooth && other.columns.length > 2 ? other.smooth[other.columns.indexOf(column)] : null;
      lines.push(other.marker + " " + other.label + ": " + words(column) + exact +
                 (average && average.y1 !== null ? ", smoothed " + shortNumber(average.y1) : ""));
    }
    chart.tip.replaceChildren(...lines.map((line) => element("div", {}, line)));
    chart.tip.hidden = false;
    const share = x / W, wide = chart.plot.clientWidth;
    chart.tip.style.top = "0px";
    if (share < 0.5) {
      chart.tip.style.left = Math.round(share * wide + 10) + "px";
      chart.tip.style.right = "";
    } else {
      chart.tip.style.left = "";
      chart.tip.style.right = Math.round((1 - share) * wide + 10) + "px";
    }
    if (wide < 420) { chart.tip.style.left = chart.tip.style.right = "0px"; chart.tip.style.top = "100%"; }
  }
  function announce(chart) {
    const one = chart.series[chart.cursor.line], c = one.columns[chart.cursor.point];
    said.textContent = one.label + ", " + stepsOf(c) + ": " + words(c);
  }

  function zoomTo(chart, low, high) {
    const [w0, w1] = chart.whole, least = (w1 - w0) / 1e6;
    low = Math.max(low, w0);
    high = Math.min(high, w1);
    if (high - low < least) return;
    chart.zoom = low <= w0 && high >= w1 ? null : [low, high];
    draw(chart);
    said.textContent = chart.zoom ? "from " + placeText(low) + " to " + placeText(high) : "whole range";
  }
  function zoomBy(chart, factor) {
    const {x0, x1} = chart.range, one = chart.cursor && chart.series[chart.cursor.line];
    const c = one && one.columns[chart.cursor.point];
    const place = c ? placeOf(one.run, c.x1) : (x0 + x1) / 2, middle = place >= x0 && place <= x1 ? place : (x0 + x1) / 2;
    const half = (x1 - x0) * factor / 2;
    zoomTo(chart, middle - half, middle + half);
  }

  function walk(chart, key) {
    if (!chart.series.length) return;
    const at = chart.cursor || {line: 0, point: -1};
    if (at.line >= chart.series.length) at.line = 0;
    const line = chart.series[at.line], last = line.columns.length - 1;
    if (key === "ArrowRight") at.point = Math.min(at.point + 1, last);
    if (key === "ArrowLeft") at.point = at.point < 0 ? last : Math.max(at.point - 1, 0);
    if (key === "PageDown") at.point = Math.min(Math.max(at.point, 0) + 10, last);
    if (key === "PageUp") at.point = Math.max(at.point - 10, 0);
    if (key === "Home") at.point = 0;
    if (key === "End") at.point = last;
    if (key === "ArrowDown" || key === "ArrowUp") {
      const c = line.columns[Math.max(at.point, 0)], count = chart.series.length;
      at.line = (at.line + (key === "ArrowDown" ? 1 : count - 1)) % count;
      at.point = nearest(chart.series[at.line], c ? placeOf(line.run, c.x1) : 0);
    }
    chart.cursor = at;
    const c = chart.series[at.line].columns[at.point], place = c && placeOf(chart.series[at.line].run, c.x1);
    if (chart.zoom && c && (place < chart.zoom[0] || place > chart.zoom[1])) {
      const half = (chart.zoom[1] - chart.zoom[0]) / 2;
      chart.zoom = [Math.max(place - half, chart.whole[0]), Math.min(place + half, chart.whole[1])];
      draw(chart);
    } else {
      drawCursor(chart);
    }
    if (c) announce(chart);
  }

  function onKey(chart, event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const walks = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"];
    if (walks.includes(event.key)) walk(chart, event.key);
    else if (event.key === "+" || event.key === "=") zoomBy(chart, 0.5);
    else if (event.key === "-") zoomBy(chart, 2);
    else if (event.key === "0") zoomTo(chart, -Infinity, Infinity);
    else if (event.key === "l") setLog(!settings.log);
    else if (event.key === "Escape") { chart.cursor = null; drawCursor(chart); }
    else return;
    event.preventDefault();
  }

  function onPointer(chart) {
    let from = null, box = null;
    const unit = (event) => {
      const place = chart.svg.getBoundingClientRect();
      return (event.clientX - place.left) / place.width * W;
    };
    chart.plot.addEventListener("pointermove", (event) => {
      const x = unit(event);
      if (from !== null) {
        if (!box || !box.isConnected) chart.svg.append(box = make("rect", {class: "zoom", y: T, height: H - B - T}));
        box.setAttribute("x", Math.min(from, x));
        box.setAttribute("width", Math.abs(x - from));
        return;
      }
      if (!chart.series.length) return;
      const place = chart.range.back(x), line = chart.cursor ? Math.min(chart.cursor.line, chart.series.length - 1) : 0;
      chart.cursor = {line: line, point: nearest(chart.series[line], place)};
      drawCursor(chart);
    });
    chart.plot.addEventListener("pointerdown", (event) => { if (event.button === 0 && event.pointerType !== "touch") from = unit(event); });
    window.addEventListener("pointerup", (event) => {
      if (from === null) return;
      const begin = from, end = unit(event);
      from = box = null;
      for (const old of chart.svg.querySelectorAll(".zoom")) old.remove();
      if (Math.abs(end - begin) < 8) return;
      zoomTo(chart, chart.range.back(Math.min(begin, end)), chart.range.back(Math.max(begin, end)));
    });
    chart.plot.addEventListener("dblclick", () => zoomTo(chart, -Infinity, Infinity));
    chart.plot.addEventListener("pointerleave", () => {
      if (document.activeElement !== chart.plot) { chart.cursor = null; drawCursor(chart); }
    });
  }

  function drawAll() { for (const chart of charts) draw(chart); }
  let logBox = null, axisBox = null;
  function setLog(on) {
    settings.log = logBox.checked = on;
    said.textContent = on ? "logarithmic scale" : "linear scale";
    drawAll();
  }

  function addControl(label, node, change) {
    const outer = element("label", {});
    outer.append(node.type === "checkbox" ? node : label + " ", node.type === "checkbox" ? label : node);
    node.addEventListener(node.type === "range" ? "input" : "change", () => change(node));
    document.getElementById("controls").append(outer);
    return node;
  }
  // The axes that the runs have.
  function fillAxes() {
    for (const name of ["steps", "samples", "tokens", "seconds"])
      if (name === "steps" || data.runs.some((run) => run.axes[name]))
        if (![...axisBox.options].some((known) => known.value === name)) axisBox.append(element("option", {value: name}, name));
  }
  function addControls() {
    const axis = axisBox = element("select", {});
    addControl("Axis", axis, (node) => {
      settings.axis = node.value;
      for (const chart of charts) chart.zoom = null;
      drawAll();
    });
    fillAxes();
    logBox = addControl("logarithmic (l)", element("input", {type: "checkbox"}), (node) => setLog(node.checked));
    addControl("Smoothing", element("input", {type: "range", min: "0", max: "0.99", step: "0.01", value: "0"}), (node) => {
      settings.smooth = Number(node.value);
      drawAll();
    });
    if (data.runs.length > 1) {
      addControl("less run A", element("input", {type: "checkbox"}), (node) => {
        settings.difference = node.checked;
        drawAll();
      });
      for (const run of data.runs) {
        const box = element("input", {type: "checkbox"});
        box.checked = true;
        addControl(run.letter + ": " + run.name, box, (node) => {
          if (node.checked) settings.hidden.delete(run.letter); else settings.hidden.add(run.letter);
          drawAll();
        });
      }
    }
    const theme = element("select", {});
    for (const name of ["system", "light", "dark"]) theme.append(element("option", {value: name}, name));
    addControl("Colours", theme, (node) => {
      if (node.value === "system") document.documentElement.removeAttribute("data-theme");
      else document.documentElement.dataset.theme = node.value;
    });
    document.getElementById("controls").classList.add("ready");
  }

  function begin(spec) {
    const figure = document.getElementById(spec.id), plot = figure.querySelector(".plot");
    const tip = element("div", {class: "tip", "aria-hidden": "true"});
    tip.hidden = true;
    plot.append(tip);
    plot.tabIndex = 0;
    plot.setAttribute("role", "application");
    plot.setAttribute("aria-label", spec.title + ". Arrow keys walk the points and the curves, plus and minus zoom, 0 shows all, " +
                      "l switches the logarithmic scale. The values are in the table below.");
    const chart = {spec: spec, plot: plot, tip: tip, zoom: null, cursor: null, svg: plot.querySelector("svg")};
    charts.push(chart);
    plot.addEventListener("keydown", (event) => onKey(chart, event));
    plot.addEventListener("blur", () => { chart.cursor = null; drawCursor(chart); });
    onPointer(chart);
    draw(chart);
  }

  // Draws the data of `page`, a later page of the same runs; what the reader chose stays. Its figures are in the document already.
  function update(page) {
    const points = charts.map((chart) => {
      const one = chart.cursor && chart.series[chart.cursor.line], c = one && one.columns[chart.cursor.point];
      return c && {label: one.label, x: c.x1};
    });
    data = read(page);
    unpackAll();
    fillAxes();
    const specs = new Map(data.charts.map((spec) => [spec.id, spec])), known = new Set();
    charts.forEach((chart, i) => {
      chart.spec = specs.get(chart.spec.id);
      if (!chart.spec) return;
      known.add(chart.spec.id);
      chart.cursor = null;
      draw(chart);
      const line = points[i] ? chart.series.findIndex((one) => one.label === points[i].label) : -1;
      if (line < 0) return;
      chart.cursor = {line: line, point: nearest(chart.series[line], placeOf(chart.series[line].run, points[i].x))};
      drawCursor(chart);
    });
    charts = charts.filter((chart) => chart.spec);
    for (const spec of data.charts) if (!known.has(spec.id)) begin(spec);
  }

  unpackAll();
  addControls();
  for (const spec of data.charts) begin(spec);
  return {update: update, say: (words) => { said.textContent = words; }};
})();
