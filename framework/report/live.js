// Of a served page, after page.js: reads the page again and takes over what changed, so that zoom, focus, places of scrolling, opened parts
// and selected text stay.
(function () {
  const live = document.getElementById("live");
  if (!live) return;
  const milliseconds = 1000 * Number(live.dataset.seconds);
  const clock = () => new Date().toLocaleTimeString();
  let failed = false;

  // Makes `old` like `now`, with as few changes as possible. Children with an id are kept by it, others by their place. Charts are not
  // touched: page.js draws them.
  function morph(old, now) {
    for (const name of now.getAttributeNames())
      if (old.getAttribute(name) !== now.getAttribute(name)) old.setAttribute(name, now.getAttribute(name));
    let at = old.firstChild;
    for (const child of now.childNodes) {
      const same = child.id ? [...old.children].find((one) => one.id === child.id)
        : at && !at.id && at.nodeName === child.nodeName ? at : null;
      if (!same) {
        old.insertBefore(document.importNode(child, true), at);
        continue;
      }
      if (same !== at) old.insertBefore(same, at);
      at = same.nextSibling;
      if (same.nodeType !== Node.ELEMENT_NODE) {
        if (same.data !== child.data) same.data = child.data;
      } else if (!same.classList.contains("plot")) {
        morph(same, child);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  function tell(words) {
    if (live.textContent !== words) live.textContent = words;
  }

  async function read() {
    const answer = await fetch(window.location.href, {cache: "no-store", credentials: "omit"});
    const words = await answer.text();
    if (!answer.ok) throw new Error(words.trim());
    const page = new DOMParser().parseFromString(words, "text/html");
    for (const part of ["nav", "main"]) morph(document.querySelector(part), page.querySelector(part));
    report.update(page);
    return page.getElementById("live") !== null;
  }

  async function turn() {
    const begun = performance.now();
    let goes_on = true;
    if (!document.hidden) {
      try {
        goes_on = await read();
        failed = false;
        tell(goes_on ? "Live: last read at " + clock() + "." : "All runs have finished; last read at " + clock() + ".");
      } catch (error) {
        const words = "Not read again: " + (error instanceof TypeError ? "the command that serves this page does not answer" : error.message) + ".";
        tell(words + " The page shows what was read before.");
        if (!failed) report.say(words);
        failed = true;
      }
    }
    // A page of many runs takes a while to make: the computer has other work, too.
    if (goes_on) window.setTimeout(turn, Math.max(milliseconds, 10 * (performance.now() - begun)));
  }

  tell("Live: last read at " + clock() + ".");
  window.setTimeout(turn, milliseconds);
})();
