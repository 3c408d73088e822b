// From file:// the search page may not read other pages for the sentences around a hit. It takes them from
// search_texts.js, which book/_tools/book_extension.py writes.
if (location.protocol === "file:") {
  window.fetch = async (address) => {
    const main = document.createElement("div");
    main.setAttribute("role", "main");
    main.textContent = (window.FEDNB_TEXTS || {})[String(address).replace(/^\.\//, "")] || "";
    return { ok: true, text: async () => main.outerHTML };
  };
}

// The buttons for a notebook and its source save the file instead of showing it.
window.addEventListener("DOMContentLoaded", () => {
  for (const link of document.querySelectorAll(".dropdown-download-buttons a")) link.setAttribute("download", "");
});

// On paper folds are open, but for folded code, which fednb.css leaves out; afterwards those that the reader had closed are closed again.
let opened = [];
window.addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("article details:not([open])")];
  for (const fold of opened) fold.open = true;
});
window.addEventListener("afterprint", () => {
  for (const fold of opened) fold.open = false;
});
