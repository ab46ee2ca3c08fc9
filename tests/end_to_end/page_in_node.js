// node page_in_node.js PAGE EXPRESSION...: runs the script of a report without a browser, in a document that has only what the script uses,
// and prints the values of the expressions as JSON. They may use what the script defines at its top (curves, report), and:
//   choose(LABEL, VALUE)  uses a control of the page
//   press(ID, KEY...)     presses keys in a chart
//   shown(ID)             what a chart shows: {lines, marks: [[classes, title]], ticks (of the x axis), legend, said}
"use strict";
const fs = require("fs"), vm = require("vm");

class Node {
  constructor(name) { Object.assign(this, {name, attributes: {}, children: [], listeners: {}, style: {}, dataset: {}, parent: null, text: "", clientWidth: 900}); }
  get classes() { return (this.attributes.class || "").split(" "); }
  get classList() { return {add: (word) => { this.attributes.class = this.classes.concat(word).join(" ").trim(); }}; }
  get options() { return this.children; }
  get textContent() { return this.text + this.children.map((child) => child.textContent).join(""); }
  set textContent(words) { this.children = []; this.text = words; }
  get isConnected() { return this.parent !== null; }
  setAttribute(name, value) {
    this.attributes[name] = String(value);
    if (name === "type" || name === "value") this[name] = String(value);
  }
  getAttribute(name) { return this.attributes[name]; }
  append(...nodes) {
    for (const node of nodes) {
      if (node instanceof Node) node.parent = this;
      this.children.push(node instanceof Node ? node : Object.assign(new Node("#text"), {text: node, parent: this}));
    }
  }
  replaceChildren(...nodes) { this.children = []; this.append(...nodes); }
  remove() { this.parent.children = this.parent.children.filter((child) => child !== this); this.parent = null; }
  replaceWith(node) { this.parent.children = this.parent.children.map((child) => child === this ? node : child); node.parent = this.parent; }
  querySelectorAll(word) {
    const fits = (node) => word[0] === "." ? node.classes.includes(word.slice(1)) : node.name === word;
    return this.children.flatMap((child) => [...(fits(child) ? [child] : []), ...child.querySelectorAll(word)]);
  }
  querySelector(word) { return this.querySelectorAll(word)[0] || null; }
  addEventListener(kind, call) { (this.listeners[kind] = this.listeners[kind] || []).push(call); }
  send(kind, event) { for (const call of this.listeners[kind] || []) call({preventDefault() {}, ...event}); }
}

const made = (name, classes, ...children) => {
  const node = new Node(name);
  node.attributes.class = classes;
  node.append(...children);
  return node;
};
const html = fs.readFileSync(process.argv[2], "utf8");
const data = html.match(/id="data">(.*?)<\/script>/s)[1], script = html.match(/<script>(.*?)<\/script>/s)[1];
const byId = {data: made("script", ""), said: made("div", ""), controls: made("div", "")};
byId.data.textContent = data;
for (const chart of JSON.parse(data).charts)
  byId[chart.id] = made("figure", "chart", made("div", "plot", made("svg", "")), made("ul", "legend", ...chart.lines.map((line) => {
    const item = new Node("li");
    item.textContent = line[2];
    return item;
  })));
const document = {getElementById: (id) => byId[id] || null, createElement: (name) => new Node(name), createElementNS: (_, name) => new Node(name),
                  documentElement: new Node("html"), activeElement: null};

const choose = (label, value) => {
  const control = byId.controls.children.find((one) => one.textContent.startsWith(label)).children.find((one) => one.name !== "#text");
  if (control.type === "checkbox") control.checked = value; else control.value = value;
  control.send(control.type === "range" ? "input" : "change", {});
};
const press = (id, ...keys) => { for (const key of keys) byId[id].querySelector(".plot").send("keydown", {key}); };
const shown = (id) => {
  const all = (word) => byId[id].querySelectorAll(word);
  return {
    lines: all(".line").map((line) => line.getAttribute("d")),
    marks: all(".mark").map((mark) => [mark.getAttribute("class"), mark.textContent]),
    ticks: all(".middle").filter((tick) => !tick.classes.includes("dots")).map((tick) => tick.textContent),
    legend: all("li").map((item) => item.textContent),
    said: byId.said.textContent};
};

const context = vm.createContext({document, window: new Node("window"), choose, press, shown, console});
vm.runInContext(script, context);
console.log(JSON.stringify(process.argv.slice(3).map((words) => vm.runInContext(words, context))));
