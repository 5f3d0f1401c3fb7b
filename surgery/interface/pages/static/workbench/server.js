// Requests to the server.
(function (sv) {
  "use strict";

  sv.byId = (id) => document.getElementById(id);

  /** Ask the server; the result is [whether it agreed, what it says]. */
  sv.ask = async function ask(path, given) {
    const options = given === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" } };
    if (given !== undefined) options.body = JSON.stringify(given);
    try {
      const answer = await fetch("/api/" + path, options);
      const isJson = (answer.headers.get("content-type") || "").includes("json");
      return [answer.ok, isJson ? await answer.json() : { error: { message: await answer.text(), problems: [] } }];
    } catch {
      const message = "The server does not answer. What was done is in its draft: start 'surgery open' again.";
      return [false, { error: { message, problems: [] } }];
    }
  };
})(surgeryViewer);
