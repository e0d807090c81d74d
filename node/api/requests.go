package api

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api/route"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/proof"
)

// None is no request, or no answer.
type None = route.None

// ByID names a job by its id or a unique beginning of it.
type ByID struct {
	ID string `path:"id"`
}

// ByPeer names a peer by its id or key.
type ByPeer struct {
	Peer string `path:"peer"`
}

// ByName names an API key.
type ByName struct {
	Name string `path:"name"`
}

// ByCID names a stored file.
type ByCID struct {
	CID string `path:"cid"`
}

// DryRun selects whether something is only shown.
type DryRun struct {
	DryRun bool `query:"dryRun" doc:"list what would be removed; remove nothing"`
}

// Upload is a file to store.
type Upload struct {
	Tree  bool      `query:"tree" doc:"the file is the tar of a directory"`
	Image string    `query:"image" doc:"the file is the manifest of this pushed image; the peer notes the name"`
	Data  io.Reader `body:"application/octet-stream"`
}

// Submit is a job to submit.
type Submit struct {
	Once string     `header:"Idempotency-Key" doc:"requests with one key submit one job"`
	Body Submission `body:"application/json"`
}

// Rerun is a job to submit once more.
type Rerun struct {
	ID   string      `path:"id"`
	Once string      `header:"Idempotency-Key" doc:"requests with one key submit one job"`
	Body job.Changes `body:"application/json"`
}

// JobsQuery selects jobs; see [record.Query].
type JobsQuery struct {
	After string    `query:"after" doc:"next of the page before"`
	Limit int       `query:"limit" doc:"jobs of a page"`
	State string    `query:"state" doc:"a state, open or ended"`
	Name  string    `query:"name" doc:"a part of the job's name"`
	Since time.Time `query:"since" doc:"created at or after"`
	Key   *string   `query:"key" doc:"submitted with this API key; empty: with none"`
}

// Events requests the trace of a job.
type Events struct {
	ID     string `path:"id"`
	After  int    `query:"after" doc:"number of the last step that is known"`
	Follow bool   `query:"follow" doc:"wait for more until the job has ended"`
}

// Log requests the log of a rank; see [ranklog.Query].
type Log struct {
	ID     string    `path:"id"`
	Rank   int       `query:"rank"`
	Follow bool      `query:"follow" doc:"wait for more until the job has ended"`
	Since  time.Time `query:"since" doc:"received by the peer in that second or later"`
	Tail   *int      `query:"tail" doc:"lines before the end; without it all"`

	Timestamps bool `query:"timestamps" doc:"begin each line with the second in which the peer received it, or -"`
}

// Exec is a program to run beside that of a rank.
type Exec struct {
	ID   string       `path:"id"`
	Rank int          `query:"rank"`
	Body live.Program `body:"application/json"`
}

// Forward is a TCP port of a rank's program.
type Forward struct {
	ID   string `path:"id"`
	Rank int    `query:"rank"`
	Port int    `query:"port" doc:"1 to 65535"`
}

// Files is a file or directory of a rank's program.
type Files struct {
	ID   string `path:"id"`
	Rank int    `query:"rank"`
	Path string `query:"path" doc:"such as /out/x"`
}

// Unpack is an archive to unpack at a path of a rank's program.
type Unpack struct {
	ID        string    `path:"id"`
	Rank      int       `query:"rank"`
	Path      string    `query:"path" doc:"such as /out/x"`
	Directory bool      `query:"directory" doc:"the path must be a directory"`
	Data      io.Reader `body:"application/x-tar"`
}

// Extend gives a job more time.
type Extend struct {
	ID   string        `path:"id"`
	Body ExtendRequest `body:"application/json"`
}

// ExtendRequest is the time to add and the new budget.
type ExtendRequest struct {
	By job.Span `json:"by"`
	// Budget is in base units; 0 keeps it, or the whole cost where the budget was that.
	Budget market.Amount `json:"budget,omitempty"`
}

// CopiesTime gives the copies of a job's outputs more time.
type CopiesTime struct {
	ID   string            `path:"id"`
	Body CopiesTimeRequest `body:"application/json"`
}

// CopiesTimeRequest is the time to add.
type CopiesTimeRequest struct {
	By job.Span `json:"by"`
}

// CopiesRecord is an exported record of the copies of a job's outputs, with their key.
type CopiesRecord struct {
	Body record.ShownCopies `body:"application/json"`
}

// Scale gives a cluster another number of members.
type Scale struct {
	ID   string       `path:"id"`
	Body ScaleRequest `body:"application/json"`
}

// ScaleRequest is the number of members and the new budget.
type ScaleRequest struct {
	Size uint32 `json:"size"`
	// Budget is in base units and not below the present one; 0 lets it follow the size.
	Budget market.Amount `json:"budget,omitempty"`
}

// TokenAnswer is a cluster's token: with it, any peer that reaches the cluster's ports may run anything on it.
type TokenAnswer struct {
	Token string `json:"token"`
}

// Days is a number of days, today included.
type Days struct {
	Days int `query:"days" doc:"1 to 366; 7 if it is missing"`
}

// NewKey is a request for an API key, and its answer with the token.
type NewKey struct {
	Name   string       `json:"name"`
	Limits spend.Limits `json:"limits"`
	Token  string       `json:"token,omitempty" doc:"in the answer only: it is not shown again"`
}

// Block is a peer to block.
type Block struct {
	Peer string      `path:"peer"`
	Body block.Entry `body:"application/json"`
}

// ByClass selects a class of offers.
type ByClass struct {
	Class string `query:"class" doc:"such as cpu; empty: all classes that are known"`
}

// ByHash names a proof by its hash.
type ByHash struct {
	Hash sign.Hash `path:"hash"`
	Peer sign.Key  `query:"peer" doc:"key of the peer that has it; this one if it is missing"`
}

// Watched is a unit that this peer watches for double sale.
type Watched struct {
	Provider sign.Key      `json:"provider"`
	Unit     market.UnitID `json:"unit"`
}

// ByKind selects proofs.
type ByKind struct {
	Kind proof.Kind `query:"kind" doc:"a kind of proof; all if it is missing"`
}

// OfJob names a proof of a job.
type OfJob struct {
	ID   string     `path:"id"`
	Kind proof.Kind `path:"kind"`
}

// SubmissionType is the content type of a job with its secrets beside it.
const SubmissionType = "application/vnd.starling.submission+json"

// Submission is a job with its secrets. Without secrets its body is the job alone.
type Submission struct {
	Job    job.Job    `json:"job"`
	Values job.Values `json:"values"`
}

var _ route.Body = (*Submission)(nil)

// EncodeBody implements route.Body. Its errors never repeat a secret.
func (s *Submission) EncodeBody() (contentType string, b []byte, err error) {
	if b, err = job.Marshal(s.Job); err != nil || !s.Job.NeedsValues() {
		return jsonType, b, err
	}
	if b, err = json.Marshal(s); err != nil {
		return "", nil, fmt.Errorf("the job's secrets cannot be encoded")
	}
	return SubmissionType, b, nil
}

// DecodeBody implements route.Body.
func (s *Submission) DecodeBody(contentType string, b []byte) (err error) {
	*s, err = ReadSubmission(contentType, b)
	return badJob(err)
}

// Forms implements route.Body.
func (s *Submission) Forms() map[string]reflect.Type {
	return map[string]reflect.Type{jsonType: reflect.TypeFor[job.Job](), SubmissionType: reflect.TypeFor[Submission]()}
}

// ReadSubmission reads the body of a submission: a job, or with SubmissionType a job and its secrets. Its errors never
// repeat a secret.
func ReadSubmission(contentType string, b []byte) (Submission, error) {
	var sub Submission
	if mt, _, err := mime.ParseMediaType(contentType); err != nil || mt != SubmissionType {
		spec, err := job.Unmarshal(b)
		return Submission{Job: spec}, err
	}
	var raw struct {
		Job    json.RawMessage `json:"job"`
		Values json.RawMessage `json:"values"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return sub, fmt.Errorf("%w: the submission is not JSON with job and values", job.ErrInvalid)
	}
	spec, err := job.Unmarshal(raw.Job)
	if err != nil {
		return sub, err
	}
	sub.Job = spec
	if len(raw.Values) > 0 {
		if err := json.Unmarshal(raw.Values, &sub.Values); err != nil {
			return sub, fmt.Errorf("%w: values: malformed secrets", job.ErrInvalid)
		}
	}
	return sub, sub.Values.CheckFor(spec)
}

// Quote is a job to quote. The values may have the credentials for the image's registry; without them a tag of a
// private image is not resolved.
type Quote struct {
	Body Submission `body:"application/json"`
}

const jsonType = "application/json"

// badJob is the answer to a job that cannot be read.
func badJob(err error) error {
	if err == nil {
		return nil
	}
	return &Error{Status: http.StatusBadRequest, Code: "bad_job", Message: err.Error()}
}
