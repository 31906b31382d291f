//! Which work does a layer of a model have, and the head? Weights are looked up as loading finds them, and nothing is computed.

use crate::layer::{Layer, Places};
use crate::products;
use crate::shard::{Sharding, Sums};
use crate::spec::{DecoderSpec, HeadWeights};
use crate::weights::Weights;
use base::error::Result;
use compute::batch::BatchLimits;
use compute::cpu::{Cpu, Experts, Isa, Matrix};
use compute::explain::{After, Kind, Pass, Weights as Stored, Work};

/// The work of layer `layer` of a decoder for the rows of `pass`, in order.
pub fn layer(spec: &DecoderSpec, weights: &Weights, layer: usize, pass: &Pass) -> Result<Vec<Work>> {
    // Weights of the CPU stay where the files have them.
    let (backend, sharding) = (Cpu::new(1, Isa::Portable), Sharding::new(spec, 0, 1, Sums::Reduced)?);
    let load = |index: usize| {
        let (mut weights, mut places) = (weights.clone(), Places::new(spec, &BatchLimits::NONE));
        Layer::load(&backend, &spec.layers[index], &sharding, &mut weights, &mut places, [index, spec.hidden])
    };
    let next = (layer + 1 < spec.layers.len()).then(|| load(layer + 1)).transpose()?;
    let rows = pass.rows * pass.tokens;
    let work = |work: products::Work<Cpu>| match work {
        products::Work::Product { name, weight, after } => {
            Work { name, rows, kind: Kind::Product(stored(weight), after) }
        }
        products::Work::Back { name, weight, next } => {
            let next = next.map(stored);
            Work { name, rows, kind: Kind::Product(stored(weight), After::Stream { next }) }
        }
        products::Work::Experts { name, weight, chosen, after } => {
            let (weights, experts) = (stored(weight.first()), Experts::shape(weight).experts);
            Work { name, rows, kind: Kind::Experts { weights, experts, chosen, after } }
        }
        products::Work::Heads { name, weight } => {
            let (weights, heads) = (stored(weight.first()), Experts::shape(weight).experts);
            Work { name, rows, kind: Kind::Heads { weights, heads } }
        }
        products::Work::Attention(heads) => Work { name: "attention", rows, kind: Kind::Attention(heads) },
        products::Work::Recurrence(name) => Work { name, rows, kind: Kind::Recurrence },
    };
    Ok(load(layer)?.work(spec, next.as_ref()).into_iter().map(work).collect())
}

/// The work of the head for as many rows as `pass` has. `None`: the model has none.
pub fn head(spec: &DecoderSpec, weights: &Weights, pass: &Pass) -> Result<Option<Work>> {
    let (mut weights, names) = (weights.clone(), weights.names());
    let name = match spec.head.weights {
        HeadWeights::Missing => return Ok(None),
        HeadWeights::Tied => names.embedding,
        HeadWeights::Own => names.head,
    };
    let matrix = Matrix::new(&[weights.matrix(name, spec.vocab, spec.hidden)?])?;
    Ok(Some(Work { name: "head", rows: pass.rows, kind: Kind::Product(stored(&matrix), After::Store) }))
}

fn stored(matrix: &Matrix) -> Stored {
    let parts = matrix.parts().iter().map(|part| (part.shape().0, part.coding()));
    Stored { parts: parts.collect(), cols: matrix.cols() }
}
