package reputation

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// incomplete is the regularised incomplete beta function by Simpson's rule: nothing like betaFraction. With
// t = sin²φ and a, b = ½ + whole numbers the integrand is a polynomial in sines and cosines.
func incomplete(a, b, x float64) float64 {
	const steps = 2000
	area := func(to float64) (sum float64) {
		f := func(phi float64) float64 {
			return math.Exp((2*a-1)*math.Log(math.Max(math.Sin(phi), 1e-300)) + (2*b-1)*math.Log(math.Max(math.Cos(phi), 1e-300)))
		}
		h := to / steps
		for i := 0; i < steps; i += 2 {
			at := float64(i) * h
			sum += f(at) + 4*f(at+h) + f(at+2*h)
		}
		return sum * h / 3
	}
	return area(math.Asin(math.Sqrt(x))) / area(math.Pi/2)
}

func TestLowerBoundIsTheFivePercentPoint(t *testing.T) {
	t.Parallel()
	if Stranger != 6155 { // sin²(π/40)
		t.Errorf("nothing known: %d", Stranger)
	}
	rapid.Check(t, func(t *rapid.T) {
		good := rapid.Uint64Range(0, 300).Draw(t, "good") * one
		bad := rapid.Uint64Range(0, 300).Draw(t, "bad") * one
		x := lowerBound(good, bad)
		a, b := 0.5+float64(good)/one, 0.5+float64(bad)/one
		if below := incomplete(a, b, float64(x)/one); below > 0.05+1e-6 {
			t.Fatalf("%v lie below %d", below, x)
		}
		if below := incomplete(a, b, float64(x+1)/one); below < 0.05-1e-6 {
			t.Fatalf("only %v lie below %d", below, x+1)
		}
	})
}

func TestLowerBoundIsMonotone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		good := rapid.Uint64Range(0, maxEvidence).Draw(t, "good")
		bad := rapid.Uint64Range(0, maxEvidence).Draw(t, "bad")
		more := rapid.Uint64Range(0, maxEvidence).Draw(t, "more")
		at := lowerBound(good, bad)
		if up := lowerBound(min(good+more, maxEvidence), bad); up < at {
			t.Fatalf("more good: %d after %d", up, at)
		}
		if down := lowerBound(good, min(bad+more, maxEvidence)); down > at {
			t.Fatalf("more bad: %d after %d", down, at)
		}
	})
}

func TestNats(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.Uint64Range(1, 1<<40).Draw(t, "unit")
		v := rapid.Uint64Range(0, 1<<62).Draw(t, "v")
		more := rapid.Uint64Range(0, 1<<62).Draw(t, "more")
		got := nats(v, unit)
		if want := math.Log1p(float64(v)/float64(unit)) * one; math.Abs(float64(got)-want) > 1 {
			t.Fatalf("%d, want %v", got, want)
		}
		if nats(v+more, unit) < got {
			t.Fatalf("less for more")
		}
	})
	if got := nats(math.MaxUint64, 1); got != 44361419 {
		t.Errorf("ln 2^64 = %d", got)
	}
}

func TestDecay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Uint64().Draw(t, "v")
		half := rapid.Uint64Range(1, 1<<40).Draw(t, "half")
		age := rapid.Uint64Range(0, 70).Draw(t, "halves")*half + rapid.Uint64Range(0, half-1).Draw(t, "rest")
		got := decay(v, age, half)
		want := float64(v) * math.Exp2(-float64(age)/float64(half))
		if math.Abs(float64(got)-want) > want*2e-5+1 {
			t.Fatalf("%d, want %v", got, want)
		}
		if later := decay(v, age+rapid.Uint64Range(0, half).Draw(t, "more"), half); later > got {
			t.Fatalf("%d later than %d", later, got)
		}
		if decay(v, 64*half, half) != 0 {
			t.Fatal("never over")
		}
	})
}

func TestLn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(1e-12, 1e12).Draw(t, "x")
		if got, want := ln(x), math.Log(x); math.Abs(got-want) > 4e-15*math.Max(1, math.Abs(want)) {
			t.Fatalf("ln %v = %v, want %v", x, got, want)
		}
		g := rapid.Float64Range(0.5, 2e4).Draw(t, "g")
		want, _ := math.Lgamma(g)
		if got := lnGamma(g); math.Abs(got-want) > 1e-12*math.Max(1, math.Abs(want)) {
			t.Fatalf("ln Γ(%v) = %v, want %v", g, got, want)
		}
	})
}
