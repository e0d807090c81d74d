package rewards

import "errors"

var (
	// ErrEpoch means that there is no such epoch, or that it cannot be counted.
	ErrEpoch = errors.New("no epoch that can be counted")
	// ErrCertificates means that certificates are not those of one unit in one epoch.
	ErrCertificates = errors.New("certificates that cannot be counted together")
	// ErrTable means that a table is not one of its epoch.
	ErrTable = errors.New("not a table of the epoch")
	// ErrProof reports that a line does not follow from its certificates.
	ErrProof = errors.New("the line is not what its certificates show")
	// ErrShort reports that a table leaves out proven work.
	ErrShort = errors.New("the table leaves out what was proven")
	// ErrNothing means that there is nobody to be paid, or nothing to pay.
	ErrNothing = errors.New("there is nothing to divide")
	// ErrNotPaid means that nobody of the wallet is paid.
	ErrNotPaid = errors.New("the wallet is not among those that are paid")
)
