// Package api is a peer's local HTTP API under /v1: what the command line and a
// user's own programs talk to. It listens on a unix socket in the home directory
// that its user alone may connect to, or on a loopback address where the
// configuration says so. Every request carries the token that the peer wrote into
// its home directory, readable by its user alone.
//
//	POST   /v1/blobs[?tree=1]          store a file (or the tar of a directory) → Blob
//	GET    /v1/blobs/{cid}             read it back
//	POST   /v1/jobs                    submit a job; Idempotency-Key makes it safe to repeat → Job. With secrets, the body is a
//	                                   Submission of type application/vnd.starling.submission+json
//	GET    /v1/jobs                    jobs, newest first → Page; ?after=NEXT &limit=N &state=S &name=N &since=TIME &key=K
//	GET    /v1/jobs/{id}               one job
//	DELETE /v1/jobs/{id}               stop it
//	GET    /v1/jobs/{id}/events        its decision trace as server-sent events; ?after=N &follow=1
//	GET    /v1/jobs/{id}/why           its decision trace so far
//	GET    /v1/jobs/{id}/logs          one rank's log, ?rank=N &follow=1, in frames of 8 bytes header (as Docker's)
//	GET    /v1/jobs/{id}/receipts      its leases with receipts and vouchers
//	GET    /v1/jobs/{id}/probes        the records of its probes (verify/exclusive), base64
//	POST   /v1/jobs/{id}/exec          run a program beside rank ?rank=N's; JSON {"args","env","workDir","tty","rows","cols"};
//	                                   upgrades to starling-shell, with the frames of node/live
//	POST   /v1/jobs/{id}/forward       connect to ?port=P of rank ?rank=N; upgrades to starling-shell, raw bytes
//	GET    /v1/jobs/{id}/files         tar of ?path=/out/x of rank ?rank=N; the trailer Starling-Error says why one is cut
//	PUT    /v1/jobs/{id}/files         unpack a tar there; &directory=1: the path must be a directory
//	POST   /v1/jobs/{id}/pause         freeze it; its units stay held and paid for → Job
//	POST   /v1/jobs/{id}/resume        let it go on → Job
//	POST   /v1/jobs/{id}/extend        give it more time, ExtendRequest → Extension, which says what each provider answered
//	POST   /v1/jobs/{id}/scale         give a cluster another number of members, ScaleRequest → Job when it has so many
//	GET    /v1/jobs/{id}/paths         what was measured between a cluster's members before their leases were signed → []cluster.Path
//	GET    /v1/jobs/{id}/token         what a cluster's engine knows its own by → TokenAnswer
//	POST   /v1/jobs/{id}/rerun         submit it once more, with Changes → Job
//	POST   /v1/quotes                  what a job would cost now; nothing is reserved → Quotation
//	GET    /v1/spend[?days=7]          what was spent by day and key, and the limits
//	GET    /v1/keys                    API keys; POST makes one → NewKey with its token, DELETE /v1/keys/{name} ends it
//	GET    /v1/blocks                  blocked peers; PUT and DELETE /v1/blocks/{peer} change the list
//	GET    /v1/node                    this peer
//	GET    /v1/peers                   peers it is connected to
//	GET    /v1/peers/{peer}            what it makes of a peer, by id or key, term by term: PeerReputation
//	GET    /v1/peers/{peer}/facts      the anchored receipts of others that it read of a peer: node/reputation's File
//	POST   /v1/ping                    measure the way to a peer: PingRequest → PingResult, which says why when there is none
//	GET    /v1/offers[?class=cpu]      offers it can find, with whether they answered a recent probe
//	GET    /v1/leases                  what this peer has sold
//	GET    /healthz                    no token needed
//	GET    /metrics                    no token needed: numbers for Prometheus; over the socket, and at the address that is configured for it
//	                                   (ListenMetrics), where it is asked for by a loopback address or localhost
//
// A cluster is a job: its spec has "cluster" (engine, command, autostop, network), "cluster" in the job says whether the engine is
// ready, and each rank's "live" has "ways", how it reaches the head and the others. Everything that is done with jobs is done so with
// clusters, too: exec, forward and logs take any rank, 0 is the head, and DELETE takes it down.
//
// An API key's token opens the routes of jobs, blobs, quotes, offers and spending, and of jobs only its own.
//
// Errors are {"error":{"code","message","hint"}} with a fitting status.
package api
