"use strict";
(() => {
  const field = document.getElementById("filter");
  const status = document.getElementById("status");
  const rows = [...document.querySelectorAll("[data-row]")];
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const boxes = [...document.querySelectorAll("main details")];
  const nodes = [...document.querySelectorAll("svg a[data-name]")];
  const sections = [...document.querySelectorAll("main section")];
  let timer = 0;

  const apply = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = texts.get(row);
      row.hidden = !words.every((word) => text.includes(word));
      if (!row.hidden) shown += 1;
    }
    for (const node of nodes) {
      const name = node.dataset.name.toLowerCase();
      node.style.opacity = words.length && !words.some((w) => name.includes(w)) ? "0.25" : "";
    }
    for (const section of sections) {
      const own = rows.filter((row) => section.contains(row));
      section.hidden = own.length > 0 && own.every((row) => row.hidden);
    }
    status.textContent = words.length ? `${shown} of ${rows.length} entries shown` : "";
  };
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(apply, 120);
  });
  for (const node of nodes) {
    node.addEventListener("click", (event) => {
      event.preventDefault();
      field.value = node.dataset.filter;
      apply();
      field.focus();
    });
  }
  const visible = (element) => element.getClientRects().length > 0;
  const step = (by) => {
    const stops = [...document.querySelectorAll("main summary")].filter(visible);
    const here = stops.indexOf(document.activeElement);
    const next = here < 0 ? (by > 0 ? 0 : stops.length - 1) : here + by;
    if (stops[next]) stops[next].focus();
  };
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!target || !target.closest("main")) return;
    if (field.value) {
      field.value = "";
      apply();
    }
    for (let box = target; box; box = box.parentElement) if (box.matches("details")) box.open = true;
    target.scrollIntoView();
    const stop = target.querySelector("summary");
    if (target.matches("details") && stop) stop.focus({ preventScroll: true });
  };
  addEventListener("hashchange", reveal);
  reveal();
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if ((event.key === "j" || event.key === "k") && document.activeElement !== field) {
      event.preventDefault();
      step(event.key === "j" ? 1 : -1);
    } else if (event.key === "/" && document.activeElement !== field) {
      event.preventDefault();
      field.focus();
    } else if (event.key === "Escape" && field.value) {
      field.value = "";
      apply();
      field.focus();
    }
  });
  const fold = document.getElementById("fold");
  fold.addEventListener("click", () => {
    const open = fold.getAttribute("aria-pressed") !== "true";
    for (const box of boxes) box.open = open;
    fold.setAttribute("aria-pressed", String(open));
  });
  const theme = document.getElementById("theme");
  theme.addEventListener("click", () => {
    const now = getComputedStyle(document.documentElement).getPropertyValue("--bg").trim();
    document.documentElement.dataset.theme = now === "#ffffff" ? "dark" : "light";
  });
  for (const item of document.querySelectorAll(".bar [hidden]")) item.hidden = false;
})();
