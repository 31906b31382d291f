//! The MLP of a layer: `down(activation(gate(x)) * up(x))`, or `down(curve(up(x)))`.

use crate::linear::{Inputs, Linear, Projection};
use crate::names::{GateUpNames, MlpNames};
use crate::products::Work;
use crate::shard::{Back, Sharding};
use crate::spec::{self, DecoderSpec, FeedForward, MlpForm};
use crate::weights::Weights;
use base::error::Result;
use compute::explain::After;
use compute::ops;
use compute::{Activated, Backend, Curve, Part, Tensor};
use std::ops::Range;

/// The MLP of one layer.
pub struct Mlp<B: Backend> {
    shape: Shape,
    /// The gate, where there is one, and `up`.
    into: Linear<B>,
    form: MlpForm,
    down: Linear<B>,
}

/// What the MLP writes on its way, shared by all layers of one shape. One per shape, in the order in which layers first have them.
pub struct MlpScratch<B: Backend>(Vec<ShapeScratch<B>>);

/// The width of an MLP, that of all ranks, and how many projections there are into it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    width: usize,
    projections: usize,
}

/// What an MLP of one shape writes on its way. `width` is that of this rank's share, unless it says otherwise.
struct ShapeScratch<B: Backend> {
    shape: Shape,
    /// For the product before the activation, where the device stores it. `[tokens, projections * width]`
    product: Tensor<B::Storage>,
    /// `[tokens, width]`
    gated: Tensor<B::Storage>,
    /// The same of all ranks, where the last projection reads it whole.
    all_gated: Option<Tensor<B::Storage>>,
    /// Columns of each rank in the rows of all. `[ranks]`
    shares: Vec<Range<usize>>,
}

impl<B: Backend> MlpScratch<B> {
    /// For passes of at most `tokens` tokens.
    pub fn new(backend: &B, spec: &DecoderSpec, sharding: &Sharding, tokens: usize) -> Result<MlpScratch<B>> {
        let mut shapes: Vec<Shape> = Vec::new();
        for shape in spec.feed_forwards().filter_map(FeedForward::dense).map(Shape::of) {
            if !shapes.contains(&shape) {
                shapes.push(shape);
            }
        }
        let scratch = shapes.into_iter().map(|shape| ShapeScratch::new(backend, shape, sharding, tokens));
        scratch.collect::<Result<_>>().map(MlpScratch)
    }

    /// Sets the tokens of this pass.
    pub fn set_rows(&mut self, tokens: usize) {
        self.0.iter_mut().for_each(|scratch| scratch.set_rows(tokens));
    }

    fn of(&mut self, shape: Shape) -> &mut ShapeScratch<B> {
        self.0.iter_mut().find(|scratch| scratch.shape == shape).expect("a layer of the spec")
    }
}

impl Shape {
    fn of(mlp: &spec::Mlp) -> Shape {
        Shape { width: mlp.width, projections: mlp.form.projections() }
    }
}

impl<B: Backend> ShapeScratch<B> {
    fn new(backend: &B, shape: Shape, sharding: &Sharding, tokens: usize) -> Result<ShapeScratch<B>> {
        let own = sharding.own_width(shape.width).len();
        let tensor = |cols| backend.tensor(tokens, cols);
        Ok(ShapeScratch {
            shape,
            product: tensor(shape.projections * own)?,
            gated: tensor(own)?,
            all_gated: sharding.gathers().then(|| tensor(shape.width)).transpose()?,
            shares: sharding.width(shape.width),
        })
    }

    fn set_rows(&mut self, tokens: usize) {
        let all = [&mut self.product, &mut self.gated].into_iter().chain(&mut self.all_gated);
        all.for_each(|tensor| tensor.set_rows(tokens));
    }
}

impl<B: Backend> Mlp<B> {
    /// The MLP of layer `layer` whose parts have these names, and whose input and output are `hidden` wide.
    pub fn load(
        backend: &B,
        spec: &spec::Mlp,
        parts: &MlpNames,
        sharding: &Sharding,
        weights: &mut Weights,
        [layer, hidden]: [usize; 2],
    ) -> Result<Mlp<B>> {
        let names = weights.names();
        let in_layer = |part: Projection| Projection { name: names.in_layer(layer, &part.name), ..part };
        let (width, own) = (spec.width, sharding.own_width(spec.width));
        let stacked: Vec<_> = projections_into(parts, spec.form, width, &own).into_iter().map(in_layer).collect();
        let Back { inputs, outputs, adds_bias } = sharding.back(width, own);
        let down = in_layer(back_projection(parts, hidden, &outputs));
        let inputs = Inputs { all: width, own: inputs };
        Ok(Mlp {
            shape: Shape::of(spec),
            into: Linear::load(backend, weights, Inputs::all(hidden), &stacked, spec.bias, true)?,
            form: spec.form,
            down: Linear::load(backend, weights, inputs, &[down], spec.down_bias, adds_bias)?,
        })
    }

    /// The layer that reads the input.
    pub fn input(&self) -> &Linear<B> {
        &self.into
    }

    /// The product into it. `names`: with a gate, and without.
    pub fn first_work(&self, [gated, plain]: [&'static str; 2]) -> Work<'_, B> {
        let weight = self.into.weight();
        match self.form {
            MlpForm::Gated { activation, gate_scale: 1.0 } => {
                Work::Product { name: gated, weight, after: After::Gate(activation) }
            }
            MlpForm::Gated { .. } | MlpForm::GatedBy(_) => Work::product(gated, &self.into),
            MlpForm::Ungated(_) => Work::product(plain, &self.into),
        }
    }

    /// The projection of what [`forward`](Self::forward) returns back into the stream.
    pub fn output(&self) -> &Linear<B> {
        &self.down
    }

    /// What [`output`](Self::output) reads. `x` is `[tokens, hidden]`.
    pub fn forward<'a>(
        &self,
        backend: &mut B,
        scratch: &'a mut MlpScratch<B>,
        x: &Tensor<B::Storage>,
    ) -> &'a Tensor<B::Storage> {
        let ShapeScratch { product, gated, all_gated, shares, .. } = scratch.of(self.shape);
        match self.form {
            MlpForm::Gated { activation, gate_scale: 1.0 } => {
                self.into.forward_gated(backend, gated, product, x, activation);
            }
            MlpForm::Gated { activation, gate_scale: scale } => {
                self.into.forward(backend, product, x);
                let (of, times) = (Part { x: &*product, first: 0 }, Part { x: &*product, first: gated.cols() });
                let curve = Curve::Gate(activation);
                ops::activate(backend, gated, Activated { of, scale, curve, times: Some(times) });
            }
            MlpForm::GatedBy(curve) => {
                self.into.forward(backend, product, x);
                let (of, times) = (Part { x: &*product, first: 0 }, Part { x: &*product, first: gated.cols() });
                ops::activate(backend, gated, Activated { of, scale: 1.0, curve, times: Some(times) });
            }
            MlpForm::Ungated(curve) => {
                self.into.forward(backend, product, x);
                let of = Part { x: &*product, first: 0 };
                ops::activate(backend, gated, Activated { of, scale: 1.0, curve, times: None });
            }
        }
        match all_gated {
            Some(all) => {
                ops::join_columns(backend, all, Some(Part { x: gated, first: 0 }), shares);
                all
            }
            None => gated,
        }
    }
}

/// The projections into an MLP of `width`, of which a rank has the outputs `own` of each. Names are those of parts.
pub fn projections_into(parts: &MlpNames, form: MlpForm, width: usize, own: &Range<usize>) -> Vec<Projection> {
    let separate = |part: &str| Projection { name: part.into(), outputs: width, own: vec![own.clone()] };
    match (parts.gate_up, form) {
        (GateUpNames::Separate { gate, up }, MlpForm::Gated { .. } | MlpForm::GatedBy(_)) => {
            vec![separate(gate), separate(up)]
        }
        (GateUpNames::Separate { up, .. }, MlpForm::Ungated(_)) => vec![separate(up)],
        (GateUpNames::Fused(both), MlpForm::Gated { .. } | MlpForm::GatedBy(_)) => {
            let own = vec![own.clone(), width + own.start..width + own.end];
            vec![Projection { name: both.into(), outputs: 2 * width, own }]
        }
        (GateUpNames::UpFirst(both), MlpForm::Gated { .. } | MlpForm::GatedBy(_)) => {
            let own = vec![width + own.start..width + own.end, own.clone()];
            vec![Projection { name: both.into(), outputs: 2 * width, own }]
        }
        (GateUpNames::Alternating(both), MlpForm::Gated { .. } | MlpForm::GatedBy(_)) => {
            let own = 2 * own.start..2 * own.end;
            vec![Projection { name: both.into(), outputs: 2 * width, own: vec![own] }]
        }
        (GateUpNames::Fused(_) | GateUpNames::UpFirst(_) | GateUpNames::Alternating(_), MlpForm::Ungated(_)) => {
            unreachable!("names of such a family")
        }
    }
}

/// The projection back into the stream, of which a rank has the outputs `own`. The name is that of the part.
pub fn back_projection(parts: &MlpNames, hidden: usize, own: &Range<usize>) -> Projection {
    Projection { name: parts.down.into(), outputs: hidden, own: vec![own.clone()] }
}
