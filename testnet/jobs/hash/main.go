// Command hash is a job for demonstrations: for the given number of seconds it searches for the hash with the most
// leading zeros, and prints its progress every second. It works for a tenth of each second, so that many fit on one
// machine.
//
//	GOOS=wasip1 GOARCH=wasm go build -o hash.wasm ./testnet/jobs/hash
//	starling run -n 3 --max-price 0.5 hash.wasm -- 30
//	starling run -d -n 3 --max-price 0.5 --out /out hash.wasm -- 30
package main

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "hash SECONDS")
		os.Exit(2)
	}
	seconds, err := strconv.Atoi(os.Args[1])
	if err != nil || seconds < 1 {
		fmt.Fprintf(os.Stderr, "%q is not a number of seconds\n", os.Args[1])
		os.Exit(2)
	}
	seed := []byte(os.Getenv("STARLING_JOB") + "/" + os.Getenv("STARLING_RANK") + "/")
	best, tried := 0, uint64(0)
	begin := time.Now()
	for s := range seconds {
		for until := time.Now().Add(100 * time.Millisecond); time.Now().Before(until); {
			for range 100 {
				h := sha256.Sum256(binary.BigEndian.AppendUint64(seed[:len(seed):len(seed)], tried))
				best = max(best, bits.LeadingZeros64(binary.BigEndian.Uint64(h[:])))
				tried++
			}
		}
		fmt.Printf("second %d: %d hashes, %d leading zeros\n", s+1, tried, best)
		time.Sleep(time.Until(begin.Add(time.Duration(s+1) * time.Second)))
	}
	if st, err := os.Stat(out); err == nil && st.IsDir() { // only if the job has the output
		text := fmt.Sprintf("%d leading zeros after %d seconds\n", best, seconds)
		if err := os.WriteFile(out+"/result.txt", []byte(text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// out is the directory of the result, if the job has it as an output.
const out = "/out"
