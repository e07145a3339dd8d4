// A page that is opened as a file may start no Worker. The search needs one: here its program runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html>";
      frame.onload = () => this.start(frame.contentWindow, address);
      document.body.append(frame);
    }

    start(inside, address) {
      // what the program sends goes to the page, not to itself
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const program = inside.document.createElement("script");
      program.src = address;
      program.onload = () => {
        this.inside = inside;
        this.waiting.forEach((data) => this.postMessage(data));
      };
      inside.document.body.append(program);
    }

    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new MessageEvent("message", { data }));
      else this.waiting.push(data);
    }
  };
}
