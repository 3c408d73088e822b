// From file:// a page may not read another one: search then lists the hits without the sentences around them.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
