package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/live"
)

// ExitCode is the program's exit status.
type ExitCode int

// The exit codes. They are a part of the interface: scripts depend on them.
const (
	ExitOK          ExitCode = 0   // done
	ExitFailed      ExitCode = 1   // the job failed, or an error without a code of its own
	ExitUsage       ExitCode = 2   // command line, job file or configuration is wrong
	ExitNoMatch     ExitCode = 3   // no fitting provider accepted the job
	ExitPayment     ExitCode = 4   // budget, funds or chain
	ExitUnreachable ExitCode = 5   // the peer or a provider cannot be reached, or the connection broke off
	ExitLost        ExitCode = 6   // the job lost providers more often than restart.max allows
	ExitPeer        ExitCode = 7   // the peer failed: its disk or its journal
	ExitTimeout     ExitCode = 124 // a time limit was reached
)

// word is the code in JSON.
func (c ExitCode) word() string {
	switch c {
	case ExitOK:
		return "ok"
	case ExitUsage:
		return "usage"
	case ExitNoMatch:
		return "no_match"
	case ExitPayment:
		return "payment"
	case ExitUnreachable:
		return "unreachable"
	case ExitLost:
		return "lost"
	case ExitPeer:
		return "peer"
	case ExitTimeout:
		return "timeout"
	}
	return "failed"
}

// Error is a failure with the exit code and the hint that go with it.
type Error struct {
	Code ExitCode
	Err  error
	Hint string // one line: the remedy; may be empty
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Usagef returns the error of a wrong command line.
func Usagef(format string, args ...any) error {
	return &Error{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}

// JobError returns the error of a job that failed; nil if the job succeeded.
func JobError(j record.Job) error {
	end, ok := j.Result()
	if !ok {
		end = j.State
	}
	if end == record.Succeeded {
		return nil
	}
	e := &Error{Code: ExitFailed, Err: fmt.Errorf("job %s %s: %s", j.ID, end, j.Reason)}
	switch j.Code {
	case record.CodeNoMatch:
		e.Code = ExitNoMatch
	case record.CodePayment:
		e.Code = ExitPayment
	case record.CodeTimeout:
		e.Code = ExitTimeout
	case record.CodeInput:
		e.Code = ExitUsage
	case record.CodeLost:
		e.Code = ExitLost
	case record.CodePeer:
		e.Code = ExitPeer
	}
	return e
}

// WithHint adds a hint to an error that has none.
func WithHint(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	e := *Explain(err)
	if e.Hint == "" {
		e.Hint = fmt.Sprintf(format, args...)
	}
	return &e
}

// Explain returns any error with exit code and hint. If the command set none, they depend on the kind of the error.
func Explain(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return &Error{Code: e.Code, Err: err, Hint: e.Hint}
	}
	e := &Error{Code: ExitFailed, Err: err}
	if answer, ok := errors.AsType[*api.Error](err); ok {
		e.Hint = answer.Hint
		switch {
		case answer.Code == api.CodePayment:
			e.Code = ExitPayment
		case answer.Code == api.CodeUnreachable:
			e.Code = ExitUnreachable
		case answer.Code == api.CodeFull, answer.Code == api.CodePeer:
			e.Code = ExitPeer
		case answer.Status >= 400 && answer.Status < 500:
			e.Code = ExitUsage
		}
		return e
	}
	switch {
	case errors.Is(err, job.ErrInvalid), errors.Is(err, job.ErrNotSupported), errors.Is(err, config.ErrConfig):
		e.Code = ExitUsage
	case errors.Is(err, api.ErrNoPeer):
		e.Code, e.Hint = ExitUnreachable, "start it with `starling up`, or name another directory with --home"
	case errors.Is(err, live.ErrCut):
		e.Code = ExitUnreachable
	case errors.Is(err, context.DeadlineExceeded):
		e.Code = ExitTimeout
	case errors.Is(err, fs.ErrPermission):
		e.Hint = "the file belongs to someone else, or its mode forbids it"
	}
	return e
}

// report prints an error in the format of -o and returns the exit code.
func (a *App) report(err error) int {
	if err == nil {
		return int(ExitOK)
	}
	if exit, ok := errors.AsType[*ExitError](err); ok {
		return exit.Code // of a user's command, which has printed its own message
	}
	e := Explain(err)
	message := strings.TrimSpace(e.Error())
	if a.Output == outputJSON {
		type body struct {
			Code    string `json:"code"`
			Message string `json:"message"`
			Hint    string `json:"hint,omitempty"`
		}
		enc := json.NewEncoder(a.Err)
		enc.SetEscapeHTML(false)
		// the exit code still reports it
		_ = enc.Encode(map[string]body{"error": {Code: e.Code.word(), Message: message, Hint: e.Hint}})
		return int(e.Code)
	}
	// texts of other peers were cleaned on receipt; file names were not
	for i, line := range strings.Split(message, "\n") {
		if i == 0 {
			line = "starling: " + line
		}
		fmt.Fprintln(a.Err, cell(line))
	}
	if e.Hint != "" {
		fmt.Fprintln(a.Err, cell("hint: "+e.Hint))
	}
	return int(e.Code)
}

// ExitInterrupted is the shells' code for a program that an interrupt ended.
const ExitInterrupted ExitCode = 130

// ExitError is a command's own exit code, without a word for JSON.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// InFile puts the file's name before every problem, as compilers do.
func InFile(path string, err error) error {
	e, ok := errors.AsType[*job.Error](err)
	if !ok {
		return err
	}
	lines := strings.Split(e.Error(), "\n")
	for i, line := range lines {
		if line != "" && line[0] >= '0' && line[0] <= '9' {
			lines[i] = path + ":" + line
		} else if !strings.HasPrefix(line, "--") { // a flag

			lines[i] = path + ": " + line
		}
	}
	text := strings.Join(lines, "\n")
	if len(lines) > 1 {
		text = fmt.Sprintf("the job file has %d problems\n%s", len(e.Problems), text)
	}
	return &Error{Code: ExitUsage, Err: &textError{text, err}}
}

// textError is an error with its text replaced.
type textError struct {
	text string
	err  error
}

func (e *textError) Error() string { return e.text }
func (e *textError) Unwrap() error { return e.err }
