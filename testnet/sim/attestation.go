package sim

// Keys of trusted hardware leak (TEE.fail). An attestation is no answer.
var attestationKinds = []Kind{{
	Name: "attestation", Threat: 20, What: "shows a stolen attestation and answers nothing", play: always(func(u *unit) { u.absent = true }), real: unlisted,
}}
