// Package lm is the demo's job: a byte-level language model that workers train in parallel on the source text of the Go
// installation of the machine.
//
//	model      the model: hashed n-gram logistic regression, Adagrad, a weights file of 6 MiB
//	corpus     shards and held-out text from $GOROOT/src, and the results of order-0, 1 and 2 statistics
//	cmd/train  the program, for GOOS=wasip1 GOARCH=wasm: train (one worker's part of a round) and reduce (its end)
//
// Training is data-parallel with local SGD. In each round every worker starts from the same weights, trains on the
// round's slice of its own shard, and hands its weights to reduce, which joins them (model.Average) and evaluates.
// Every step is a function of its input files: a lost part can be repeated, on any machine, with the same result to the
// bit.
//
//	round r, rank k   train    in: /data/shard.bin (k's), /carry/weights.bin (reduce's of round r-1; none in round 0)
//	                           out: /out/weights.bin
//	round r           reduce   in: /data/heldout.bin, /carry/weights.bin (the same), /in/K/weights.bin for each rank K
//	                           out: /out/weights.bin, /out/metrics.json {"round","bits_per_byte","workers","bytes"}
//	environment                STARLING_RANK (train), STARLING_COUNT, STARLING_ROUND, STARLING_ROUNDS
//
// Build the program with
//
//	GOOS=wasip1 GOARCH=wasm go build -ldflags="-s -w" -o train.wasm ./testnet/jobs/lm/cmd/train
//
// # Figures
//
// Go 1.26's source, 5 workers, 6 rounds of 1 MiB each (30 MiB in all), 388 KiB from 89 held-out files; bits per byte:
//
//	order 0, 1, 2                 5.322  4.079  3.121   interpolated, same training and held-out text
//	after rounds 1 to 6           2.312  2.211  2.186  2.136  2.109  2.103
//	one machine, same data        2.104
//
// With rounds of 512 KiB: 2.461, 2.304, 2.251, 2.214, 2.194, 2.187; one machine 2.186, order 2 3.147.
//
// A worker's round takes 1.6 s of CPU in the sandbox (0.9 s at 512 KiB), a reduction 1.4 s and 133 MiB of memory. The
// whole training takes 39 s on two cores, and 13 s natively on one machine.
package lm
