// Browsers start no worker from a file. Where the site is opened without a server, the search's worker runs in a
// hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.early = [] // messages from before the frame was ready
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.srcdoc =
        '<script>window.postMessage = (message) => parent.postMessage(message, "*")<\/script>' +
        `<script src="${url}"><\/script>`
      this.frame.onload = () => {
        const early = this.early
        this.early = null
        early.forEach((message) => this.postMessage(message))
      }
      window.addEventListener("message", (event) => {
        if (event.source === this.frame.contentWindow) {
          this.dispatchEvent(new MessageEvent("message", { data: event.data }))
        }
      })
      document.body.append(this.frame)
    }

    postMessage(message) {
      if (this.early) this.early.push(message)
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: message }))
    }
  }
}
