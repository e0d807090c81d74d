package audit

import (
	"fmt"

	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// ByPlan is the Plan of every network: verify/audit's question for a class.
func ByPlan(c Claim) (Asked, error) {
	shape, walk, err := audit.Plan(c.Class, c.Resources)
	if err != nil {
		return Asked{}, err
	}
	floor, ok := audit.FloorOf(c.Class, c.Resources)
	if !ok {
		return Asked{}, fmt.Errorf("%w: class %s has no floor", challenge.ErrShape, c.Class)
	}
	product, walked := floor.Deadlines(shape, walk)
	return Asked{
		Shape: shape, Walk: walk,
		ProductLimit: duration(audit.Patience(product)),
		WalkLimit:    duration(audit.Patience(walked)),
		SecondLimit:  duration(audit.Within(c.Class, product)),
		WholeLimit:   duration(audit.Whole(c.Class, product, walked)),
	}, nil
}
