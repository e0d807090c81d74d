package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// MaxEncoded bounds a job as JSON.
const MaxEncoded = 4 << 20

// Marshal writes a valid job as JSON, for the local API and the journal.
func Marshal(j Job) ([]byte, error) {
	if err := j.Check(); err != nil {
		return nil, fmt.Errorf("writing the job: %w", err)
	}
	b, err := json.Marshal(j)
	if err != nil {
		return nil, fmt.Errorf("writing the job: %w", err)
	}
	if len(b) > MaxEncoded {
		return nil, fmt.Errorf("writing the job: %w: %d bytes, at most %d", ErrInvalid, len(b), MaxEncoded)
	}
	return b, nil
}

// Unmarshal reads the output of Marshal: one JSON object without unknown fields, held to every rule. ErrInvalid or
// ErrNotSupported otherwise.
func Unmarshal(b []byte) (Job, error) {
	if len(b) > MaxEncoded {
		return Job{}, fmt.Errorf("%w: %d bytes, at most %d", ErrInvalid, len(b), MaxEncoded)
	}
	var j Job
	if err := json.Unmarshal(b, &j); err != nil {
		var known *Error
		if errors.As(err, &known) || errors.Is(err, ErrInvalid) {
			return Job{}, err
		}
		return Job{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return j, nil
}

// UnmarshalJSON is Unmarshal, also where a job is a part of something larger.
func (j *Job) UnmarshalJSON(b []byte) error {
	if len(b) > MaxEncoded {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrInvalid, len(b), MaxEncoded)
	}
	type plain Job // without this method
	var p plain
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: more than one JSON value", ErrInvalid)
	}
	read := normal(Job(p))
	if err := read.Check(); err != nil {
		return err
	}
	*j = read
	return nil
}

// normal makes empty fields nil, so that equal jobs are equal values.
func normal(j Job) Job {
	if len(j.Labels) == 0 {
		j.Labels = nil
	}
	if len(j.Env) == 0 {
		j.Env = nil
	}
	if len(j.Blobs) == 0 {
		j.Blobs = nil
	}
	j.Args, j.Inputs, j.Outputs = nilIfEmpty(j.Args), nilIfEmpty(j.Inputs), nilIfEmpty(j.Outputs)
	j.Entrypoint, j.Secrets, j.Webhooks = nilIfEmpty(j.Entrypoint), nilIfEmpty(j.Secrets), nilIfEmpty(j.Webhooks)
	for i, w := range j.Webhooks {
		if w.Events != nil && len(w.Events) == 0 {
			j.Webhooks = slices.Clone(j.Webhooks)
			j.Webhooks[i].Events = nil
		}
	}
	if j.Health != nil {
		h := *j.Health
		h.Command = nilIfEmpty(h.Command)
		j.Health = &h
	}
	if j.Cluster != nil {
		own := *j.Cluster
		if own.Command = nilIfEmpty(own.Command); len(own.Options) == 0 {
			own.Options = nil
		}
		j.Cluster = &own
	}
	j.Placement.Regions, j.Placement.Exclude = nilIfEmpty(j.Placement.Regions), nilIfEmpty(j.Placement.Exclude)
	j.Placement.Only, j.Volumes = nilIfEmpty(j.Placement.Only), nilIfEmpty(j.Volumes)
	if j.Rounds != nil && j.Rounds.Reduce != nil {
		rounds, reduce := *j.Rounds, *j.Rounds.Reduce
		reduce.Args, reduce.Inputs = nilIfEmpty(reduce.Args), nilIfEmpty(reduce.Inputs)
		rounds.Reduce = &reduce
		j.Rounds = &rounds
	}
	return j
}

func nilIfEmpty[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}

// timeoutsJSON has durations as people write them.
type timeoutsJSON struct {
	Queue Span `json:"queue"`
	Pull  Span `json:"pull,omitzero"`
	Start Span `json:"start,omitzero"`
	Run   Span `json:"run"`
	Stop  Span `json:"stop,omitzero"`
}

// MarshalJSON writes {"queue":"2m0s","run":"1h0m0s"}.
func (t Timeouts) MarshalJSON() ([]byte, error) {
	return json.Marshal(timeoutsJSON{Span(t.Queue), Span(t.Pull), Span(t.Start), Span(t.Run), Span(t.Stop)})
}

// JSONForm returns a value of the type that MarshalJSON encodes, for documentation.
func (Timeouts) JSONForm() any { return timeoutsJSON{} }

// UnmarshalJSON reads the output of MarshalJSON.
func (t *Timeouts) UnmarshalJSON(b []byte) error {
	var text timeoutsJSON
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&text); err != nil {
		return fmt.Errorf("timeouts: %w", err)
	}
	*t = Timeouts{
		Queue: time.Duration(text.Queue), Pull: time.Duration(text.Pull), Start: time.Duration(text.Start),
		Run: time.Duration(text.Run), Stop: time.Duration(text.Stop),
	}
	return nil
}
