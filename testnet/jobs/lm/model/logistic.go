package model

// steps of the logistic table to one unit of its argument.
const steps = 128

// table holds 1/(1+exp(-x)) at multiples of 1/steps from -16 to 16.
var table = func() (t [32*steps + 2]float32) {
	for i := range t {
		t[i] = float32(1 / (1 + exp(-float64(i-16*steps)/steps)))
	}
	return t
}()

// exp is the exponential by its series, after halving the argument. It is slow, and the same on every machine, which
// package math does not promise.
func exp(x float64) float64 {
	const halvings = 10
	x /= 1 << halvings
	sum, term := 1.0, 1.0
	for n := 1; n < 12; n++ {
		term = float64(term * x / float64(n))
		sum += term
	}
	for range halvings {
		sum = float64(sum * sum)
	}
	return sum
}

// logistic is 1/(1+exp(-x)) by linear interpolation.
func logistic(x float32) float32 {
	x = min(max(x, -maxLogit), maxLogit)
	at := float32((x + 16) * steps)
	i := int32(at)
	rest := at - float32(i)
	lo := table[i]
	return lo + float32((table[i+1]-lo)*rest)
}
