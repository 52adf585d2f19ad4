// Loaded into Azurite before it starts. pyarrow's client takes "100 Continue" and an error that arrive together for a
// broken connection, and tries again for half a minute. Where a request has no body, the first of them says nothing.
const { ServerResponse } = require("http");
const { writeContinue } = ServerResponse.prototype;
ServerResponse.prototype.writeContinue = function (...args) {
  if (this.req.headers["content-length"] !== "0") writeContinue.apply(this, args);
};
