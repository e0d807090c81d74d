// Package exclusive is the conversation about one probe of a lease (verify/exclusive), on a stream that leads into a
// running execution (protocol.Live) and that the provider accepts when the devices are ready:
//
//	buyer                                         provider
//	'p' ‖ 8 random bytes            ────────────▶
//	                                ◀──────────── the same 8 bytes           3 times before and after the question
//	'q' ‖ question[96] ‖ signature, ────────────▶
//	for each device
//	                                ◀──────────── 'r' ‖ device u8 ‖ root[32] ‖ signature under the answer,
//	                                              for each as it is there; or 'm': the program has filled the
//	                                              memory, and that was all
//	'd' ‖ nonce[16]                 ────────────▶
//	                                ◀──────────── for each: signature under what is opened ‖ n u32 ‖
//	                                              n bytes of openings
//
// There is one question for each device on a stream, one device but for GPUs: all that the execution has, at once, so
// that none answers for another. A provider that finds a result to be wrong says nothing more: its own sandbox, the
// buyer's program in it, or its memory has spoiled it, and an opening would stand against it.
package exclusive
