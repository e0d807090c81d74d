// Package exclusive is the protocol of one probe of a lease (verify/exclusive), on a stream to a running execution
// (protocol.Live). The provider accepts the stream when the devices are ready:
//
//	buyer                                         provider
//	'p' ‖ 8 random bytes            ────────────▶
//	                                ◀──────────── the same 8 bytes           3 times before and after the question
//	'q' ‖ question[96] ‖ signature, ────────────▶
//	for each device
//	                                ◀──────────── 'r' ‖ device u8 ‖ root[32] ‖ signature under the answer,
//	                                              for each when it is ready; or 'm': the program has filled the
//	                                              memory, and the exchange ends
//	'd' ‖ nonce[16]                 ────────────▶
//	                                ◀──────────── for each: signature under the openings ‖ n u32 ‖
//	                                              n bytes of openings
//
// A stream has one question for each device: the processor, or all GPUs of the execution at once, so that none can
// answer for another. A provider that finds a wrong result stops answering: its sandbox, the buyer's program or its
// memory corrupted the result, and an opening would be proof against the provider.
package exclusive
