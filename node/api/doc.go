// Package api is the local HTTP API of a peer, under /v1: its routes, the types of their requests and answers, and the
// Go client. The command line and a user's own programs use it; node/api/server serves it.
//
// Each route is declared once, in routes.go, with its pattern, summary, types, limit and access; see node/api/route. A
// declaration is the client's call: GetJob.Call(ctx, client, ByID{ID: id}). All together are the reference, which
// `starling peer api` prints, and the OpenAPI 3.1 document at GET /v1/openapi.json.
//
// A peer listens on a unix socket in its home directory to which its user alone may connect, or on a loopback address
// where the configuration says so. It writes the address and a token to api.json there, readable by its user alone. The
// token opens every route. An API key's token opens the routes with Access keys, and of the jobs only its own.
//
// An answer without success is {"error":{"code","message","hint"}} with a fitting status.
//
// A cluster is a job with "cluster" in its spec. The job's "cluster" reports the readiness of the engine. The "live" of
// each rank has "ways": its connections to the head and the others.
package api
