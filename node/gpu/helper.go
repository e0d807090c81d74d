package gpu

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/starling-network/starling/node/child"
)

// callTimeout is how long a helper may take for one answer: drivers of large machines take seconds to wake up.
const callTimeout = 20 * time.Second

// helper is the program starling-nvml, spoken to.
type helper struct {
	*child.Program
	timeout time.Duration
}

func newHelper(path string, args ...string) *helper {
	return startedBy(child.Config{Path: path, Args: args})
}

// startedBy returns the helper for a configuration of the process.
func startedBy(cfg child.Config) *helper {
	cfg.Failed = ErrHelper
	cfg.Read = func(r *bufio.Reader) ([]byte, error) { return readLine(r, maxReply) }
	return &helper{Program: child.New(cfg), timeout: callTimeout}
}

// call sends a request to the helper. It returns ErrHelper if the process failed, which is then not restarted for a
// while; ErrNVML if NVML does not work; or the context's error.
func (h *helper) call(ctx context.Context, op string, uuids []string) (reply, error) {
	var p reply
	err := h.Call(ctx, child.Question{
		Timeout: h.timeout,
		Text: func(id uint64) ([]byte, error) {
			b, err := json.Marshal(request{Version: HelperVersion, ID: id, Op: op, UUIDs: uuids})
			if err == nil && len(b) >= maxRequest {
				err = fmt.Errorf("a request of %d bytes", len(b))
			}
			return append(b, '\n'), err
		},
		Answer: func(id uint64, b []byte) error {
			got, err := decodeReply(b)
			if err == nil && got.ID != id {
				err = fmt.Errorf("answer %d to request %d", got.ID, id)
			}
			if err != nil {
				return h.Nonsense(err)
			}
			if got.Error != nil { // no call into NVML is allowed after it failed, so this ends the process
				return &nvmlError{kind: got.Error.Kind, text: got.Error.Text}
			}
			p = got
			return nil
		},
	})
	if err != nil {
		return reply{}, err
	}
	return p, nil
}

// nvmlError is an error that a helper reported.
type nvmlError struct{ kind, text string }

func (e *nvmlError) Error() string        { return ErrNVML.Error() + ": " + e.text }
func (e *nvmlError) Is(target error) bool { return target == ErrNVML }
