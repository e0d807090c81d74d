// Package api is a peer's local HTTP API under /v1: what the command line and a
// user's own programs talk to. It listens on loopback only and every request
// carries the token that the peer wrote into its home directory, readable by its
// user alone.
//
//	POST   /v1/blobs[?tree=1]          store a file (or the tar of a directory) → Blob
//	GET    /v1/blobs/{cid}             read it back
//	POST   /v1/jobs                    submit a job; Idempotency-Key makes it safe to repeat → Job
//	GET    /v1/jobs                    all jobs, newest first
//	GET    /v1/jobs/{id}               one job
//	DELETE /v1/jobs/{id}               stop it
//	GET    /v1/jobs/{id}/events        its decision trace as server-sent events; ?after=N &follow=1
//	GET    /v1/jobs/{id}/why           its decision trace so far
//	GET    /v1/jobs/{id}/logs          one rank's log, ?rank=N &follow=1, in frames of 8 bytes header (as Docker's)
//	GET    /v1/jobs/{id}/receipts      its leases with receipts and vouchers
//	GET    /v1/node                    this peer
//	GET    /v1/peers                   peers it is connected to
//	GET    /v1/offers[?class=cpu]      offers it can find, with whether they answered a recent probe
//	GET    /v1/leases                  what this peer has sold
//	GET    /healthz                    no token needed
//
// Errors are {"error":{"code","message","hint"}} with a fitting status.
package api
