// The filters of the gallery. Without this script the page shows all cards, and no filters.
// An address may choose, too: gallery.html?algorithm=sac
const filters = document.querySelector(".filters")
const selects = [...filters.querySelectorAll("select")]
const cards = [...document.querySelectorAll(".card")]

function show() {
  for (const card of cards)
    card.hidden = selects.some(select => select.value && select.value !== card.dataset[select.name])
  const shown = cards.filter(card => !card.hidden).length
  filters.querySelector("output").textContent = `${shown} of ${cards.length} cards`
}

const chosen = new URLSearchParams(location.search)
for (const select of selects)
  if ([...select.options].some(option => option.value === chosen.get(select.name)))
    select.value = chosen.get(select.name)
filters.addEventListener("change", show)
filters.addEventListener("submit", event => event.preventDefault())
filters.hidden = false
show()
