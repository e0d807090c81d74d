package jobfile

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/gpu"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime"
)

// parseCount reads a whole number that fits 32 bits.
func parseCount(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%.40q is not a count: want a whole number, such as 3", text)
	}
	return uint32(n), nil
}

// parseTruth reads true or false.
func parseTruth(text string) (bool, error) {
	if text != "true" && text != "false" {
		return false, fmt.Errorf("%.40q, want true or false", text)
	}
	return text == "true", nil
}

// parseCPU reads CPUs into thousandths: "2", "0.5", "500m".
func parseCPU(text string) (uint32, error) {
	if milli, ok := strings.CutSuffix(text, "m"); ok {
		n, err := strconv.ParseUint(milli, 10, 32)
		if err != nil {
			return 0, badCPU(text)
		}
		return uint32(n), nil
	}
	n, err := market.ParseDecimal(text, 3)
	if err != nil || n > math.MaxUint32 {
		return 0, badCPU(text)
	}
	return uint32(n), nil
}

func badCPU(text string) error {
	return fmt.Errorf("%.40q is not a number of CPUs: want 2, 0.5 or 500m", text)
}

// parseMiB reads a size that is a whole number of MiB: "512Mi", "1.5Gi", "2GiB".
func parseMiB(text string) (uint32, error) {
	number, unit := text, ""
	if i := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' }); i >= 0 {
		number, unit = text[:i], text[i:]
	}
	var scale uint64
	switch strings.TrimSuffix(unit, "B") {
	case "Mi":
		scale = 1
	case "Gi":
		scale = 1 << 10
	case "Ti":
		scale = 1 << 20
	default:
		return 0, fmt.Errorf("%.40q is not a size: want a number with Mi, Gi or Ti, such as 512Mi", text)
	}
	const decimals, thousand = 3, 1000
	n, err := market.ParseDecimal(number, decimals)
	if err != nil || n > math.MaxUint32*thousand {
		return 0, fmt.Errorf("%.40q is not a size: want a number with Mi, Gi or Ti, such as 512Mi", text)
	}
	if n *= scale; n%thousand != 0 {
		return 0, fmt.Errorf("%.40q is not a whole number of Mi", text)
	}
	if n /= thousand; n > math.MaxUint32 {
		return 0, fmt.Errorf("%.40q is too large", text)
	}
	return uint32(n), nil
}

// parseTime reads a duration: "90s", "1h30m".
func parseTime(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%.40q is not a length of time: want 30s, 10m or 1h30m", text)
	}
	return d, nil
}

// parsePrice reads a price of a unit for an hour in whole tokens: "0.05" or "0.05/unit-hour".
func parsePrice(text string, token Token) (market.Price, error) {
	number, per, found := strings.Cut(text, "/")
	if found && per != "unit-hour" {
		return 0, fmt.Errorf("%.40q is a price per %.20q: want a price per unit-hour, such as 0.05/unit-hour", text,
			per)
	}
	n, err := parseMoney(number, token)
	return market.Price(n), err
}

// parseMoney reads whole tokens into base units, exactly.
func parseMoney(text string, token Token) (market.Amount, error) {
	n, err := market.ParseDecimal(text, token.Decimals)
	switch {
	case errors.Is(err, market.ErrOverflow):
		return 0, fmt.Errorf("%.40q is too much", text)
	case err != nil:
		if _, part, dotted := strings.Cut(text, "."); dotted && len(part) > int(token.Decimals) {
			switch {
			case market.CheckDecimal(text) != nil:
			case token.Free:
				return 0, errors.New("a free network has no prices: leave it out")
			default:
				return 0, fmt.Errorf("%.40q has %d decimals, the token has %d", text, len(part), token.Decimals)
			}
		}
		return 0, fmt.Errorf("%.40q is not an amount: want a decimal number, such as 0.05", text)
	}
	return market.Amount(n), nil
}

// parseCheckpoint reads "/ckpt" or "/ckpt:5m".
func parseCheckpoint(text string) (*job.Checkpoint, error) {
	path, every, given := strings.Cut(text, ":")
	c := &job.Checkpoint{Path: path}
	var err error
	if given {
		c.Every, err = parseSpan(every)
	}
	return c, err
}

// parseCopies returns a reader of COUNT:TIME[:PRICE], such as 3:720h:0.0002.
func parseCopies(token Token) func(text string) (*job.Copies, error) {
	return func(text string) (*job.Copies, error) {
		parts := strings.Split(text, ":")
		if len(parts) < 2 || len(parts) > 3 {
			return nil, fmt.Errorf("%.40q, want COUNT:TIME[:PRICE], such as 3:720h:0.0002", text)
		}
		c := &job.Copies{}
		var err error
		if c.Count, err = parseCount(parts[0]); err != nil {
			return nil, err
		}
		if c.For, err = parseDays(parts[1]); err == nil && len(parts) == 3 {
			c.MaxPrice, err = parsePrice(parts[2], token)
		}
		return c, err
	}
}

// parseDays is parseSpan that reads whole days, too: 30d.
func parseDays(text string) (job.Span, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return job.Span(time.Duration(n) * 24 * time.Hour), nil
		}
	}
	return parseSpan(text)
}

// parseSpan is parseTime for a Span.
func parseSpan(text string) (job.Span, error) {
	d, err := parseTime(text)
	return job.Span(d), err
}

func asClass(text string) (market.Class, error) { return market.Class(text), nil }

func asRegion(text string) (market.Region, error) { return market.Region(text), nil }

func asProvider(text string) (sign.Key, error) {
	k, err := sign.ParseKey(text)
	if err != nil {
		return sign.Key{}, fmt.Errorf("%.60q is not a provider's key", text)
	}
	return k, nil
}

func asVerify(text string) (job.Verify, error) {
	switch v := job.Verify(text); v {
	case "none":
		return job.VerifyNone, nil
	case job.VerifyReplicate:
		return v, nil
	}
	return "", fmt.Errorf("%.40q, want none or replicate", text)
}

func asProbes(text string) (job.Probes, error) {
	switch p := job.Probes(text); p {
	case "warn":
		return job.ProbesWarn, nil
	case job.ProbesMove, job.ProbesOff:
		return p, nil
	}
	return "", fmt.Errorf("%.40q, want off, warn or move", text)
}

// parseGPUs parses a request for GPUs, as in docker's --gpus with a model and minimums, into the units of every rank:
// "2", "h100:8", "2,vram>=24".
func parseGPUs(text string) (job.Resources, error) {
	s, err := gpu.ParseSelector(text)
	if err == nil {
		err = s.ForOrder()
	}
	if err != nil {
		return job.Resources{}, err
	}
	r := job.Resources{Class: "gpu", Units: s.Count}
	if s.Model != "" {
		r.Class = market.Class(gpu.ClassPrefix + s.Model)
	}
	r.PerUnit.VRAMMiB = uint32(s.MinVRAMMiB) // the selector bounds it
	if s.MinCapability != "" {
		n, err := market.ParseDecimal(s.MinCapability, 1)
		if err != nil || n > uint64(market.MaxCapability) {
			return job.Resources{}, fmt.Errorf("%.20q is not a compute capability such as 8.0", s.MinCapability)
		}
		r.MinCapability = market.Capability(n)
	}
	return r, nil
}

// ask adds the request for GPUs to the requests for each unit's processor, memory and disk.
func ask(r *job.Resources, gpus job.Resources) {
	r.Class, r.Units, r.PerUnit.VRAMMiB, r.MinCapability = gpus.Class, gpus.Units, gpus.PerUnit.VRAMMiB,
		gpus.MinCapability
}

// fieldGPUs is the field that sets class and units from one text.
const fieldGPUs = "spec.resources.gpus"

const gpusSay = "conflict with gpus: write gpus, or class and units"

func asPolicy(text string) (job.RestartPolicy, error) {
	switch p := job.RestartPolicy(text); p {
	case "never", "no":
		return job.RestartNever, nil
	case job.RestartOnFailure, job.RestartAlways:
		return p, nil
	}
	return "", fmt.Errorf("%.40q, want never, on-failure or always", text)
}

func asPort(n uint32) (uint16, error) {
	if n < 1 || n > math.MaxUint16 {
		return 0, fmt.Errorf("%d is not a port: want 1 to %d", n, math.MaxUint16)
	}
	return uint16(n), nil
}

// asImage takes the scheme off that some tools write before an image.
func asImage(text string) string { return strings.TrimPrefix(text, "docker://") }

// asNetwork reads the network that a program can reach.
func asNetwork(text string) (runtime.Network, error) {
	switch text {
	case "none":
		return runtime.NetworkNone, nil
	case string(runtime.NetworkInternet):
		return runtime.NetworkInternet, nil
	case "host":
		return "", fmt.Errorf("%s", job.Never["hostNetwork"])
	}
	return "", fmt.Errorf("%.40q, want none or internet", text)
}

// parsePort reads a port from text.
func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%.40q is not a port: want a whole number, such as 8080", text)
	}
	return asPort(uint32(n))
}

// asNetClass reads a network class.
func asNetClass(text string) (cluster.Class, error) {
	c := cluster.Class(text)
	return c, c.Check()
}
