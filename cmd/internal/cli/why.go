package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
)

func newWhy(a *App) *cobra.Command {
	return &cobra.Command{
		Use:   "why ID",
		Short: "Explain who was asked, what they answered and how it was decided",
		Long: `Shows the decision trace of a job: for every order the quotes that came in with their route, price and delay, the
providers that declined, were silent or did not fit with the reason, and who was chosen for which rank; then what happened
since. -o json has every step.

The route says how a quote came about: direct, the provider was known and asked over a stream; gossip, it heard the order on
its class's topic.`,
		Example: `  starling why jk3v5q2a
  starling why jk3v5q2a -o json`,
		GroupID: groupJobs,
		Args:    exactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			j, err := client.Job(c.Context(), args[0])
			if err != nil {
				return err
			}
			steps, err := client.Why(c.Context(), j.ID)
			if err != nil {
				return err
			}
			return a.Show(steps, func(t *Table) {
				t.Row("job " + j.ID + ": " + j.Summary())
				whyTable(t, j.Created, steps)
			})
		},
	}
}

// answer is what one provider made of one order.
type answer struct {
	buyer.Step
	asked bool
}

// whyTable groups the steps of a trace: each order with its answers and choices, and between them what happened in time.
func whyTable(t *Table, began time.Time, steps []buyer.Step) {
	var answers []answer
	var asked []string
	flush := func() {
		answered := map[string]bool{}
		for _, s := range answers {
			answered[s.Provider] = true
		}
		for _, p := range asked {
			if !answered[p] {
				answers = append(answers, answer{buyer.Step{Kind: buyer.StepAsked, Provider: p, Route: buyer.RouteDirect, Detail: "no answer was needed any more"}, true})
				answered[p] = true
			}
		}
		if len(answers) > 0 {
			answerTable(t, answers)
		}
		answers, asked = nil, nil
	}
	timeline := false
	for _, s := range steps {
		switch s.Kind {
		case buyer.StepOrdered:
			if strings.HasPrefix(s.Detail, "order ") {
				flush()
				timeline = false
				t.Row()
				t.Row(since(began, s.At) + "  " + s.Detail)
			} else {
				t.Row("  " + s.Detail)
			}
		case buyer.StepAsked:
			asked = append(asked, s.Provider)
		case buyer.StepQuoted, buyer.StepDeclined, buyer.StepSilent, buyer.StepInfeasible:
			answers = append(answers, answer{Step: s})
		default:
			flush()
			if !timeline {
				t.Row()
				timeline = true
			}
			t.Row(since(began, s.At), s.Kind, rankOf(s), who(s.Provider), s.Route, s.Price, took(s.Took), s.Detail)
		}
	}
	flush()
}

// answerTable lists the quotes, the cheapest first, then everybody else with the reason.
func answerTable(t *Table, answers []answer) {
	order := map[buyer.StepKind]int{buyer.StepQuoted: 0, buyer.StepInfeasible: 1, buyer.StepDeclined: 2, buyer.StepSilent: 3, buyer.StepAsked: 4}
	slices.SortStableFunc(answers, func(x, y answer) int {
		return cmp.Or(cmp.Compare(order[x.Kind], order[y.Kind]), cmp.Compare(len(x.Price), len(y.Price)), strings.Compare(x.Price, y.Price), cmp.Compare(x.Took, y.Took))
	})
	t.Row()
	t.Row("PROVIDER", "ANSWER", "ROUTE", "PRICE", "TOOK", "DETAIL")
	for _, s := range answers {
		price := "-"
		if s.Price != "" {
			price = s.Price
		}
		t.Row(who(s.Provider), s.Kind, s.Route, price, took(s.Took), s.Detail)
	}
}

func since(began, at time.Time) string {
	return fmt.Sprintf("+%.3fs", at.Sub(began).Seconds())
}

func rankOf(s buyer.Step) string {
	if s.Rank == nil {
		return ""
	}
	return fmt.Sprintf("rank %d", *s.Rank)
}

// who is a provider's key in a table.
func who(provider string) string {
	if k, err := sign.ParseKey(provider); err == nil {
		return k.Short()
	}
	return provider
}

func took(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}
