package jobcmd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
)

// NewWhy makes the command `starling why`.
func NewWhy(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "why ID",
		Short: "Explain how a job's providers were chosen",
		Long: `Shows the decision trace of a job. For every order it lists the quotes with route, price and delay, the
providers that declined, did not answer or did not fit, with the reason, and the chosen provider of each rank; then the
events since. -o json has every step.

The route of a quote is direct (the provider was known and the order was sent on a stream) or gossip (the provider
received the order on the topic of its class).`,
		Example: `  starling why jk3v5q2a
  starling why jk3v5q2a -o json`,
		GroupID: cli.GroupJobs,
		Args:    cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			j, err := api.GetJob.Call(c.Context(), client, api.ByID{ID: args[0]})
			if err != nil {
				return err
			}
			steps, err := api.JobSteps.Call(c.Context(), client, api.ByID{ID: j.ID})
			if err != nil {
				return err
			}
			return a.Show(steps, func(t *cli.Table) {
				t.Row("job " + j.ID + ": " + j.Summary())
				whyTable(t, j, steps)
			})
		},
	}
}

// whyTable groups the steps of a trace: each order with its answers, and the events between orders.
func whyTable(t *cli.Table, j record.Job, steps []record.Step) {
	var answers []answer
	flush := func() {
		answerTable(t, answers)
		answers = nil
	}
	timeline := false
	for _, s := range steps {
		switch s.Kind {
		case record.StepOrdered:
			if strings.HasPrefix(s.Detail, "order ") {
				flush()
				timeline = false
				t.Row()
				t.Row(since(j.Created, s.At) + "  " + s.Detail)
			} else {
				t.Row("  " + s.Detail)
			}
		case record.StepAsked, record.StepQuoted, record.StepDeclined, record.StepSilent, record.StepInfeasible,
			record.StepBlocked:
			answers = merge(answers, s)
		case record.StepRound:
			if j.Spec.RoundCount() == 1 {
				continue
			}
			fallthrough
		default:
			flush()
			if !timeline {
				t.Row()
				timeline = true
			}
			t.Row(since(j.Created, s.At), s.Kind, rankOf(s), shortKey(s.Provider), s.Route, s.Price, cli.Took(s.Took),
				s.Detail)
		}
	}
	flush()
}

// answer is one provider's answer to one order, with the routes on which it arrived.
type answer struct {
	provider, price, detail string
	kind                    record.StepKind
	ways                    []string // "direct in 5ms"
}

// merge adds a step to the answers. A provider without an earlier answer counts as asked.
func merge(answers []answer, s record.Step) []answer {
	at := slices.IndexFunc(answers, func(a answer) bool {
		return a.provider == s.Provider && (a.kind == record.StepAsked || s.Kind == record.StepAsked ||
			a.kind == s.Kind && a.price == s.Price)
	})
	if at < 0 {
		answers = append(answers, answer{provider: s.Provider, kind: record.StepAsked,
			detail: "no answer before there were enough quotes"})
		at = len(answers) - 1
	}
	if s.Kind == record.StepAsked {
		return answers
	}
	a := &answers[at]
	a.kind, a.price, a.detail = s.Kind, s.Price, s.Detail
	way := s.Route
	if d := cli.Took(s.Took); d != "" {
		way += " in " + d
	}
	if way != "" {
		a.ways = append(a.ways, way)
	}
	return answers
}

// answerTable lists the quotes in order of arrival, then the other providers with the reason.
func answerTable(t *cli.Table, answers []answer) {
	if len(answers) == 0 {
		return
	}
	order := map[record.StepKind]int{record.StepQuoted: 0, record.StepInfeasible: 1, record.StepDeclined: 2,
		record.StepSilent: 3, record.StepBlocked: 4, record.StepAsked: 5}
	slices.SortStableFunc(answers, func(x, y answer) int { return cmp.Compare(order[x.kind], order[y.kind]) })
	t.Row()
	t.Row("PROVIDER", "ANSWER", "PRICE", "ROUTE", "DETAIL")
	for _, a := range answers {
		t.Row(shortKey(a.provider), a.kind, cmp.Or(a.price, "-"), cmp.Or(strings.Join(a.ways, ", "), "-"), a.detail)
	}
}

func since(began, at time.Time) string {
	return fmt.Sprintf("+%.3fs", at.Sub(began).Seconds())
}

func rankOf(s record.Step) string {
	if s.Rank == nil {
		return ""
	}
	return fmt.Sprintf("rank %d", *s.Rank)
}

// shortKey returns a provider's key for a table.
func shortKey(provider string) string {
	if k, err := sign.ParseKey(provider); err == nil {
		return k.Short()
	}
	return provider
}
