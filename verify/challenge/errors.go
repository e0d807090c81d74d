package challenge

import "errors"

var (
	// ErrShape means that the size of a product or a walk is out of bounds or does not fit the layout.
	ErrShape = errors.New("challenge of a size out of bounds")
	// ErrTiles means that there are more or fewer tile hashes than the products have tiles.
	ErrTiles = errors.New("tile hashes do not fit the products")
	// ErrFault reports that a tile, computed again, differs from the committed one: a fault of the hardware. The answer
	// must be withheld, for an opening under that root would count as a lie.
	ErrFault = errors.New("committed tile: differs when computed again")
	// ErrOpenings reports that the opened leaves are not the drawn ones.
	ErrOpenings = errors.New("openings: not the drawn ones")
	// ErrEntry means that an opened value is not the product's.
	ErrEntry = errors.New("opened value is wrong")
	// ErrCommitment means that openings are not under the committed root.
	ErrCommitment = errors.New("openings are not under the root")
	// ErrWalk means that a walker did not arrive where its walk leads.
	ErrWalk = errors.New("walker's end is wrong")
	// ErrMalformed means that bytes do not have the layout.
	ErrMalformed = errors.New("malformed challenge data")
)
