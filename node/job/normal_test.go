package job

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

// Reading a job changes none of the values that it was made from.
func TestNormalKeepsItsInput(t *testing.T) {
	t.Parallel()
	j := containerJob(t)
	j.Webhooks = []Webhook{{URL: "https://a", Events: []string{}}, {URL: "https://b", Events: []string{"failed"}}}
	j.Health.Command = []string{}
	j.Cluster = &Cluster{Options: map[string]string{}, Command: []string{}}
	j.Rounds = &Rounds{Reduce: &Reduce{Args: []string{}, Inputs: []Input{}}}
	hooks, health, cluster, reduce := slices.Clone(j.Webhooks), *j.Health, *j.Cluster, *j.Rounds.Reduce
	n := normal(j)
	if !reflect.DeepEqual(j.Webhooks, hooks) || !reflect.DeepEqual(*j.Health, health) ||
		!reflect.DeepEqual(*j.Cluster, cluster) || !reflect.DeepEqual(*j.Rounds.Reduce, reduce) {
		t.Errorf("changed %+v", j)
	}
	if n.Webhooks[0].Events != nil || len(n.Webhooks[1].Events) != 1 || n.Health.Command != nil ||
		n.Cluster.Options != nil || n.Cluster.Command != nil || n.Rounds.Reduce.Args != nil ||
		n.Rounds.Reduce.Inputs != nil {
		t.Errorf("got %+v", n)
	}
}

// A length of time is written as people write it and is read back equal; other texts are refused.
func TestSpans(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"1h30m0s": 90 * time.Minute, "0s": 0, "1ns": 1,
		"-5s": -5 * time.Second} {
		var s Span
		if err := s.UnmarshalText([]byte(text)); err != nil || time.Duration(s) != want || s.String() != text {
			t.Errorf("%s: got %v, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "5", "1 h", "1d", "9999999h", "inf", "\x00"} {
		if err := new(Span).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is a length of time", text)
		}
	}
	for _, text := range []string{`{"queue":5}`, `{"run":"1h","more":"1h"}`, `[]`, `{"run":null`} {
		before := Timeouts{Queue: 1}
		if err := before.UnmarshalJSON([]byte(text)); err == nil || before != (Timeouts{Queue: 1}) {
			t.Errorf("%s: got %+v, %v, want a refusal that changes nothing", text, before, err)
		}
	}
}
