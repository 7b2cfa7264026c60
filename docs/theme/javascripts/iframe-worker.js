// Browsers refuse to start a worker on a page that was opened from a file. The search then runs in a hidden frame.
// Without this file the site generator loads a script with this purpose from another server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.onmessage = this.onmessageerror = this.onerror = null
      this.element = document.createElement("iframe")
      this.element.hidden = true
      document.body.append(this.element)
      const frame = this.element.contentWindow
      frame.postMessage = (data) => this.deliver(this, new MessageEvent("message", { data: structuredClone(data) }))
      frame.importScripts = () => {
        throw new Error("scripts cannot be imported in a frame")
      }
      this.loaded = new Promise((resolve, reject) => {
        const script = frame.document.createElement("script")
        script.onload = resolve
        script.onerror = reject
        script.src = address
        frame.document.body.append(script)
      })
      this.loaded.catch(() => this.deliver(this, new Event("error")))
    }

    deliver(target, event) {
      setTimeout(() => {
        target.dispatchEvent(event)
        if (target === this) this[`on${event.type}`]?.(event)
      })
    }

    // Both sides may change a message, so each receives a copy, as from a worker.
    postMessage(data) {
      const frame = this.element.contentWindow
      data = structuredClone(data)
      this.loaded.then(() => this.deliver(frame, new frame.MessageEvent("message", { data })), () => {})
    }

    terminate() {
      this.element.remove()
    }
  }
}
