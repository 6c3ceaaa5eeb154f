// An application in another language: `ringpopd --http-in` stands before it.
const http = require("http");
const [, , host, port] = process.argv;
const name = process.env.HOST_NAME;

http.createServer((request, response) => {
  response.setHeader("content-type", "application/json");
  const said = request.url === "/who" ? name : { host: name, key: request.url.split("/").pop() };
  response.end(JSON.stringify(said));
}).listen(Number(port), host);
