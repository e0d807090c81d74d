package api

import (
	"slices"
	"sync"

	"github.com/starling-network/starling/node/api/route"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/rewards"
)

// Limits of request bodies, bytes.
const (
	MaxJob     = job.MaxEncoded
	MaxBlob    = 64 << 30
	MaxProgram = 256 << 10
	MaxProof   = 512 << 10
	MaxCopies  = 8 << 20 // 16 outputs of 1,024 ranks have less than 4 MiB
	maxPing    = 4 << 10
)

// ShellProtocol is the protocol that a connection to a running program is upgraded to: the frames of node/live.
const ShellProtocol = "starling-shell"

const (
	binaryType = "application/octet-stream"
	eventsType = "text/event-stream"
	logType    = "application/vnd.starling.log"
	tarType    = "application/x-tar"
	textType   = "text/plain"
)

// keys opens a route to API keys.
const keys = route.Keys

// Jobs.
var (
	SubmitJob = declare(route.Route[Submit, record.Job]{
		Pattern: "POST /v1/jobs", Summary: "Submit a job", Access: keys, Limit: MaxJob, Location: created,
	})
	ListJobs = declare(route.Route[JobsQuery, record.Page]{
		Pattern: "GET /v1/jobs", Summary: "List jobs, newest first", Access: keys,
	})
	GetJob   = declare(route.Route[ByID, record.Job]{Pattern: "GET /v1/jobs/{id}", Summary: "Show a job", Access: keys})
	StopJob  = declare(route.Route[ByID, None]{Pattern: "DELETE /v1/jobs/{id}", Summary: "Stop a job", Access: keys})
	RerunJob = declare(route.Route[Rerun, record.Job]{
		Pattern: "POST /v1/jobs/{id}/rerun",
		Summary: "Submit a job once more, with changes", Access: keys, Limit: MaxJob, Location: created,
	})
	JobEvents = declare(route.Raw[Events]{
		Pattern: "GET /v1/jobs/{id}/events",
		Summary: "Send the steps of a job's decisions, and the job after each change, as server-sent events",
		Access:  keys, Answer: eventsType,
	})
	JobSteps = declare(route.Route[ByID, []record.Step]{
		Pattern: "GET /v1/jobs/{id}/why", Summary: "List the steps of a job's decisions", Access: keys,
	})
	JobLog = declare(route.Raw[Log]{
		Pattern: "GET /v1/jobs/{id}/logs",
		Summary: "Send a rank's log in frames with a header of 8 bytes, as Docker's", Access: keys, Answer: logType,
	})
	RemoveJob = declare(route.Route[ByID, RemovedJob]{
		Pattern: "DELETE /v1/jobs/{id}/record",
		Summary: "Remove a job that ended a day ago or earlier, with its receipts, logs and outputs",
	})
	JobReceipts = declare(route.Route[ByID, []record.LeaseAccount]{
		Pattern: "GET /v1/jobs/{id}/receipts",
		Summary: "List a job's leases with their receipts and vouchers", Access: keys,
	})
	JobCopies = declare(route.Route[ByID, record.ShownCopies]{
		Pattern: "GET /v1/jobs/{id}/copies",
		Summary: "List the copies of a job's outputs at providers, with the key that decrypts them", Access: keys,
	})
	ExtendCopies = declare(route.Route[CopiesTime, record.ExtendedCopies]{
		Pattern: "POST /v1/jobs/{id}/copies/extend",
		Summary: "Give the copies of a job's outputs more time; the answer has each provider's", Access: keys,
	})
	RestoreJob = declare(route.Route[ByID, None]{
		Pattern: "POST /v1/jobs/{id}/restore",
		Summary: "Fetch a job's outputs from the providers with copies, if they are not here", Access: keys,
	})
	ImportCopies = declare(route.Route[CopiesRecord, None]{
		Pattern: "POST /v1/copies/import",
		Summary: "Fetch the outputs of an exported record of copies from their providers, if they are not here",
		Limit:   MaxCopies,
	})
	JobProof = declare(route.Route[OfJob, proof.Proof]{
		Pattern: "GET /v1/jobs/{id}/proofs/{kind}",
		Summary: "Export the proof of a job's cost (receipts), or of its probes (probes)", Access: keys,
	})
	QuoteJob = declare(route.Route[Quote, record.Quotation]{
		Pattern: "POST /v1/quotes", Summary: "Quote a job; nothing is reserved", Access: keys, Limit: MaxJob,
	})
)

// Running programs.
var (
	ExecProgram = declare(route.Raw[Exec]{
		Pattern: "POST /v1/jobs/{id}/exec",
		Summary: "Run a program beside that of a rank; the connection then has the frames of node/live",
		Access:  keys, Limit: MaxProgram, Upgrade: ShellProtocol,
	})
	ForwardPort = declare(route.Raw[Forward]{
		Pattern: "POST /v1/jobs/{id}/forward",
		Summary: "Connect to a TCP port of a rank; the connection then has its bytes in the frames of node/live",
		Access:  keys, Limit: MaxProgram, Upgrade: ShellProtocol,
	})
	GetFiles = declare(route.Raw[Files]{
		Pattern: "GET /v1/jobs/{id}/files",
		Summary: "Send a tar of a file or directory; if it is incomplete, the trailer Starling-Error has the reason",
		Access:  keys, Answer: tarType,
	})
	PutFiles = declare(route.Raw[Unpack]{
		Pattern: "PUT /v1/jobs/{id}/files",
		Summary: "Unpack a tar at a path of a rank", Access: keys, Limit: route.Unlimited,
	})
	PauseJob = declare(route.Route[ByID, record.Job]{
		Pattern: "POST /v1/jobs/{id}/pause", Summary: "Freeze a job; its units stay held and paid for", Access: keys,
	})
	ResumeJob = declare(route.Route[ByID, record.Job]{
		Pattern: "POST /v1/jobs/{id}/resume", Summary: "Resume a paused job", Access: keys,
	})
	ExtendJob = declare(route.Route[Extend, record.Extension]{
		Pattern: "POST /v1/jobs/{id}/extend",
		Summary: "Give a job more time; the answer has each provider's", Access: keys,
	})
)

// Clusters: jobs with "cluster" in their spec. The routes of jobs serve them too; rank 0 is the head.
var (
	ScaleCluster = declare(route.Route[Scale, record.Job]{
		Pattern: "POST /v1/jobs/{id}/scale",
		Summary: "Give a cluster another number of members, and wait for it", Access: keys,
	})
	ClusterPaths = declare(route.Route[ByID, []cluster.Path]{
		Pattern: "GET /v1/jobs/{id}/paths",
		Summary: "List the paths measured between a cluster's members before their leases were signed", Access: keys,
	})
	ClusterToken = declare(route.Route[ByID, TokenAnswer]{
		Pattern: "GET /v1/jobs/{id}/token", Summary: "Show the token of a cluster's engine", Access: keys,
	})
)

// Stored files.
var (
	PutBlob = declare(route.Route[Upload, record.Blob]{
		Pattern: "POST /v1/blobs", Summary: "Store a file, or the tar of a directory", Access: keys, Limit: MaxBlob,
	})
	ListBlobs = declare(route.Route[None, []StoredBlob]{
		Pattern: "GET /v1/blobs", Summary: "List stored files, with the jobs and leases that need them",
	})
	CleanBlobs = declare(route.Route[DryRun, []StoredBlob]{
		Pattern: "DELETE /v1/blobs",
		Summary: "Remove stored files that nothing needs and that were not used for 15 minutes; the answer lists them",
	})
	GetBlob = declare(route.Raw[ByCID]{
		Pattern: "GET /v1/blobs/{cid}", Summary: "Read a stored file", Access: keys, Answer: binaryType,
	})
)

// Money and API keys.
var (
	GetSpending = declare(route.Route[Days, spend.Report]{
		Pattern: "GET /v1/spend", Summary: "Show spending by day and key, with the limits", Access: keys,
	})
	ListKeys = declare(route.Route[None, []spend.Key]{Pattern: "GET /v1/keys", Summary: "List API keys"})
	AddKey   = declare(route.Route[NewKey, NewKey]{
		Pattern: "POST /v1/keys", Summary: "Make an API key; the answer has its token",
	})
	RemoveKey = declare(route.Route[ByName, None]{Pattern: "DELETE /v1/keys/{name}", Summary: "End an API key"})
)

// This peer and others.
var (
	GetNode   = declare(route.Route[None, NodeInfo]{Pattern: "GET /v1/node", Summary: "Show this peer", Access: keys})
	GetHealth = declare(route.Route[None, Health]{
		Pattern: "GET /v1/health", Access: keys, Failing: func(h Health) bool { return !h.Healthy },
		Summary: "List this peer's services that are out of order; the status is 200 if none is, else 503",
	})
	ListPeers = declare(route.Route[None, []PeerInfo]{Pattern: "GET /v1/peers", Summary: "List connected peers"})
	GetPeer   = declare(route.Route[ByPeer, PeerReputation]{
		Pattern: "GET /v1/peers/{peer}", Summary: "Explain a peer's reputation, given its id or key",
	})
	GetHistory = declare(route.Route[ByPeer, proof.Proof]{
		Pattern: "GET /v1/peers/{peer}/history",
		Summary: "Export the anchored receipts of others that count for or against a peer",
	})
	PingPeer = declare(route.Route[PingRequest, PingResult]{
		Pattern: "POST /v1/ping", Summary: "Measure the path to a peer", Limit: maxPing,
	})
	ListGuarded = declare(route.Route[None, []GuardedJob]{
		Pattern: "GET /v1/guarded", Summary: "List guarded jobs of others",
	})
	ListBlocks = declare(route.Route[None, []block.Entry]{Pattern: "GET /v1/blocks", Summary: "List blocked peers"})
	AddBlock   = declare(route.Route[Block, block.Entry]{
		Pattern: "PUT /v1/blocks/{peer}", Summary: "Block a peer, given its key",
	})
	RemoveBlock = declare(route.Route[ByPeer, None]{Pattern: "DELETE /v1/blocks/{peer}", Summary: "Unblock a peer"})
)

// The market.
var (
	ListOffers = declare(route.Route[ByClass, []OfferInfo]{
		Pattern: "GET /v1/offers",
		Summary: "List offers, with whether each provider answered a recent probe", Access: keys,
	})
	ListLeases   = declare(route.Route[None, []SoldLease]{Pattern: "GET /v1/leases", Summary: "List sold leases"})
	GetOwnOffers = declare(route.Route[None, OwnOffers]{
		Pattern: "GET /v1/offers/own", Summary: "Show this peer's offers",
	})
	PauseOffers = declare(route.Route[None, OwnOffers]{
		Pattern: "POST /v1/offers/own/pause", Summary: "Stop selling; sold leases go on",
	})
	DrainOffers = declare(route.Route[None, OwnOffers]{
		Pattern: "POST /v1/offers/own/drain", Summary: "Stop selling before the peer is stopped",
	})
	ResumeOffers = declare(route.Route[ResumeRequest, OwnOffers]{
		Pattern: "POST /v1/offers/own/resume", Summary: "Sell again, or sell withdrawn devices again",
	})
	PriceOffer = declare(route.Route[PriceRequest, OwnOffers]{
		Pattern: "POST /v1/offers/own/price", Summary: "Change the price of a class",
	})
	ListImages = declare(route.Route[None, []ImageInfo]{
		Pattern: "GET /v1/images",
		Summary: "List the images of jobs of others that stay, and the pushed ones of this peer",
	})
	RemoveImage = declare(route.Route[ByID, None]{
		Pattern: "DELETE /v1/images/{id}", Summary: "Remove an image that nothing uses",
	})
)

// Proofs.
var (
	ListProofs = declare(route.Route[ByKind, []proof.Entry]{
		Pattern: "GET /v1/proofs", Summary: "List proofs that this peer keeps",
	})
	GetProof = declare(route.Route[ByHash, proof.Proof]{
		Pattern: "GET /v1/proofs/{hash}", Summary: "Export a proof of this peer, or of another one",
	})
	KeepProof = declare(route.Route[proof.File, proof.Entry]{
		Pattern: "POST /v1/proofs", Summary: "Check and keep a proof from a file", Limit: MaxProof,
	})
	ListWatched = declare(route.Route[None, []Watched]{
		Pattern: "GET /v1/proofs/watched", Summary: "List watched units",
	})
	WatchUnit = declare(route.Route[Watched, []Watched]{
		Pattern: "POST /v1/proofs/watched", Summary: "Watch a unit for double sale",
	})
	UnwatchUnit = declare(route.Route[Watched, []Watched]{
		Pattern: "DELETE /v1/proofs/watched", Summary: "Watch a unit no longer",
	})
	ListAudits = declare(route.Route[None, []proof.PastAudit]{
		Pattern: "GET /v1/audits", Summary: "List the audits of this peer's units",
	})
	RunAudit = declare(route.Route[None, []proof.PastAudit]{
		Pattern: "POST /v1/audits", Summary: "Audit this peer's units now, and wait",
	})
	GetRewards   = declare(route.Route[None, rewards.Status]{Pattern: "GET /v1/rewards", Summary: "Show rewards"})
	ClaimRewards = declare(route.Route[None, rewards.Status]{
		Pattern: "POST /v1/rewards/claim", Summary: "Claim rewards now, and wait",
	})
)

// The API itself.
var (
	GetDocument = declare(route.Raw[None]{
		Pattern: "GET /v1/openapi.json",
		Summary: "Show this API as an OpenAPI 3.1 document", Access: route.Public, Answer: jsonType,
	})
	GetAlive = declare(route.Raw[None]{
		Pattern: "GET /healthz", Summary: "Answer ok while the peer runs", Access: route.Public, Answer: textType,
	})
	GetMetrics = declare(route.Raw[None]{
		Pattern: "GET /metrics",
		Summary: "Show numbers for Prometheus, on the unix socket alone", Access: route.Socket, Answer: textType,
	})
)

// table has every declared route, in the order of this file.
var table []route.Operation

// declare adds a route to the table.
func declare[R route.Declared](r R) R {
	table = append(table, r.Operation())
	return r
}

// Routes lists every route.
func Routes() []route.Operation { return slices.Clone(table) }

// Document returns the OpenAPI 3.1 document of every route.
var Document = sync.OnceValues(func() ([]byte, error) {
	return route.Document("Starling", "1", description, table)
})

const description = "The local API of a Starling peer or light client. It listens on a unix socket in the home " +
	"directory, or on a loopback address if configured. The file api.json there has the address " +
	"and the token. Amounts are in base units of the network's token."

func created(j record.Job) string { return "/v1/jobs/" + j.ID }
