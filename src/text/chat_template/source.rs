//! What the source of a template may be, so that compiling it takes bounded memory, time and stack.
//!
//! The parser of the template engine bounds how deep tags and parentheses are nested, but not how long a chain of operators or
//! of `elif` is, each link of which is a level for whatever walks the tree. And constants are computed when a template is
//! compiled, once for each expression that they stand in.

use super::environment::syntax;
use base::limits;
use minijinja::Value;
use minijinja::machinery::ast::{BinOpKind, Call, CallArg, Expr, Macro, Stmt};
use minijinja::machinery::{Token, parse, tokenize};
use minijinja::value::ValueKind;

/// Work of computing the constants of a template: values and bytes.
const CONSTANT_WORK: u64 = 8 << 20;

/// Fails with a reason unless the template can be compiled. A template that is not well-formed is left to the compiler.
///
/// To be called on a deep stack.
pub(super) fn check(source: &str) -> Result<(), String> {
    check_tokens(source)?;
    let Ok(tree) = parse(source, "", syntax()) else { return Ok(()) };
    let mut constants = Constants { work_left: CONSTANT_WORK };
    constants.statement(&tree)
}

/// Bounds the links of every chain.
fn check_tokens(source: &str) -> Result<(), String> {
    let mut in_tag = 0;
    let mut elifs = 0;
    for token in tokenize(source, false, syntax()) {
        // The compiler says what is wrong with it.
        let Ok((token, span)) = token else { return Ok(()) };
        in_tag = match token {
            Token::TemplateData(_) | Token::VariableStart | Token::BlockStart => 0,
            _ => in_tag + 1,
        };
        elifs += usize::from(matches!(token, Token::Ident("elif")));
        if in_tag > limits::TEMPLATE_TAG_TOKENS {
            let (line, most) = (span.start_line, limits::TEMPLATE_TAG_TOKENS);
            return Err(format!(
                "the tag that ends in or after line {line} is longer than {most} identifiers, literals and operators"
            ));
        }
        if elifs > limits::TEMPLATE_ELIFS {
            return Err(format!("the template has more than {} elif tags", limits::TEMPLATE_ELIFS));
        }
    }
    Ok(())
}

/// What a walk of the compiler through an expression finds.
struct Found {
    /// The value that the compiler computes, if all of it is constant.
    constant: Option<Value>,
    /// What computing it takes, or finding out that it is not constant.
    work: u64,
}

/// Walks all expressions of a template.
struct Constants {
    work_left: u64,
}

impl Constants {
    fn statements(&mut self, statements: &[Stmt]) -> Result<(), String> {
        statements.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &Stmt) -> Result<(), String> {
        match statement {
            Stmt::Template(template) => self.statements(&template.children),
            Stmt::EmitExpr(emitted) => self.any(&emitted.expr),
            Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => Ok(()),
            Stmt::ForLoop(loop_) => {
                self.any(&loop_.target)?;
                self.any(&loop_.iter)?;
                self.all(loop_.filter_expr.iter())?;
                self.statements(&loop_.body)?;
                self.statements(&loop_.else_body)
            }
            Stmt::IfCond(condition) => {
                self.any(&condition.expr)?;
                self.statements(&condition.true_body)?;
                self.statements(&condition.false_body)
            }
            Stmt::WithBlock(with) => {
                self.all(with.assignments.iter().flat_map(|(target, value)| [target, value]))?;
                self.statements(&with.body)
            }
            Stmt::Set(set) => self.all([&set.target, &set.expr]),
            Stmt::SetBlock(set) => {
                self.any(&set.target)?;
                self.all(set.filter.iter())?;
                self.statements(&set.body)
            }
            Stmt::AutoEscape(escape) => {
                self.any(&escape.enabled)?;
                self.statements(&escape.body)
            }
            Stmt::FilterBlock(filtered) => {
                self.any(&filtered.filter)?;
                self.statements(&filtered.body)
            }
            Stmt::Block(block) => self.statements(&block.body),
            Stmt::Import(import) => self.all([&import.expr, &import.name]),
            Stmt::FromImport(import) => {
                self.any(&import.expr)?;
                self.all(import.names.iter().flat_map(|(name, alias)| std::iter::once(name).chain(alias)))
            }
            Stmt::Extends(extends) => self.any(&extends.name),
            Stmt::Include(include) => self.any(&include.name),
            Stmt::Macro(declared) => self.declared(declared),
            Stmt::CallBlock(block) => {
                self.call(&block.call)?;
                self.declared(&block.macro_decl)
            }
            Stmt::Do(do_) => self.call(&do_.call),
        }
    }

    fn declared(&mut self, declared: &Macro) -> Result<(), String> {
        self.all(declared.args.iter().chain(&declared.defaults))?;
        self.statements(&declared.body)
    }

    fn call(&mut self, call: &Call) -> Result<(), String> {
        self.any(&call.expr)?;
        self.arguments(&call.args)
    }

    fn arguments(&mut self, arguments: &[CallArg]) -> Result<(), String> {
        self.all(arguments.iter().map(|argument| match argument {
            CallArg::Pos(value) | CallArg::Kwarg(_, value) | CallArg::PosSplat(value) | CallArg::KwargSplat(value) => {
                value
            }
        }))
    }

    fn all<'a>(&mut self, expressions: impl IntoIterator<Item = &'a Expr<'a>>) -> Result<(), String> {
        expressions.into_iter().try_for_each(|expression| self.any(expression))
    }

    fn any(&mut self, expression: &Expr) -> Result<(), String> {
        self.walk(expression).map(drop)
    }

    fn walk(&mut self, expression: &Expr) -> Result<Found, String> {
        let (within, may_be_constant) = self.parts(expression)?;
        let mut found = Found { constant: None, work: 1 + within };
        if may_be_constant {
            // Bounded, because its parts are small and `parts` has looked at what this operation makes of them.
            found.constant = expression.as_const();
            found.work += found.constant.as_ref().map_or(0, bytes);
        }
        if found.constant.as_ref().map_or(0, bytes) > limits::TEMPLATE_CONSTANT_BYTES as u64 && !is_literal(expression)
        {
            return Err(too_large());
        }
        // The compiler asks once at this level, and so on for the parts; this walk did the same.
        self.work_left = self
            .work_left
            .checked_sub(found.work)
            .ok_or_else(|| "the template has too many constant expressions".to_owned())?;
        Ok(found)
    }

    /// Walks the parts of an expression: what asking them for a constant takes, and whether all are constant.
    fn parts(&mut self, expression: &Expr) -> Result<(u64, bool), String> {
        match expression {
            Expr::Var(_) => Ok((0, false)),
            Expr::Const(_) => Ok((0, true)),
            Expr::UnaryOp(unary) => self.constants([&unary.expr]),
            Expr::BinOp(binary) => {
                let (left, right) = (self.walk(&binary.left)?, self.walk(&binary.right)?);
                let are_constant = match (&left.constant, &right.constant) {
                    (Some(left), Some(right)) => {
                        check_size(binary.op, left, right)?;
                        true
                    }
                    _ => false,
                };
                Ok((left.work + right.work, are_constant))
            }
            Expr::Compare(chain) => {
                self.constants(std::iter::once(&chain.expr).chain(chain.ops.iter().map(|comparison| &comparison.expr)))
            }
            Expr::List(list) => self.constants(&list.items),
            Expr::Tuple(tuple) => self.constants(&tuple.items),
            Expr::Map(map) => self.constants(map.keys.iter().chain(&map.values)),
            Expr::Slice(slice) => {
                self.any(&slice.expr)?;
                self.all([&slice.start, &slice.stop, &slice.step].into_iter().flatten())?;
                Ok((0, false))
            }
            Expr::IfExpr(choice) => {
                self.all([&choice.test_expr, &choice.true_expr].into_iter().chain(&choice.false_expr))?;
                Ok((0, false))
            }
            Expr::Filter(filter) => {
                self.all(filter.expr.iter())?;
                self.arguments(&filter.args)?;
                Ok((0, false))
            }
            Expr::Test(test) => {
                self.any(&test.expr)?;
                self.arguments(&test.args)?;
                Ok((0, false))
            }
            Expr::GetAttr(attribute) => self.any(&attribute.expr).map(|()| (0, false)),
            Expr::GetItem(item) => self.all([&item.expr, &item.subscript_expr]).map(|()| (0, false)),
            Expr::Call(call) => self.call(call).map(|()| (0, false)),
        }
    }

    fn constants<'a>(&mut self, parts: impl IntoIterator<Item = &'a Expr<'a>>) -> Result<(u64, bool), String> {
        let mut all = (0, true);
        for part in parts {
            let found = self.walk(part)?;
            all = (all.0 + found.work, all.1 && found.constant.is_some());
        }
        Ok(all)
    }
}

/// What stands in the source as it is.
fn is_literal(expression: &Expr) -> bool {
    matches!(expression, Expr::Const(_) | Expr::List(_) | Expr::Tuple(_) | Expr::Map(_))
}

fn too_large() -> String {
    let most = limits::TEMPLATE_CONSTANT_BYTES;
    format!("the template computes a constant of more than {most} bytes")
}

/// Whether the result of an operation on two constants is small enough, before it is made.
fn check_size(operation: BinOpKind, left: &Value, right: &Value) -> Result<(), String> {
    let is_scalar = |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool);
    // No value takes more than 12 times its bytes when it is written.
    let written = |value: &Value| if value.as_str().is_some() { bytes(value) } else { 12 * bytes(value) };
    let made = match operation {
        BinOpKind::Mul if !is_scalar(left) => bytes(left).saturating_mul(right.as_usize().unwrap_or(1) as u64),
        BinOpKind::Mul if !is_scalar(right) => bytes(right).saturating_mul(left.as_usize().unwrap_or(1) as u64),
        BinOpKind::Concat => written(left) + written(right),
        BinOpKind::Add => bytes(left) + bytes(right),
        _ => 0,
    };
    if made > limits::TEMPLATE_CONSTANT_BYTES as u64 { Err(too_large()) } else { Ok(()) }
}

/// Bytes of a constant, which is a literal or has been found to be small.
fn bytes(constant: &Value) -> u64 {
    match constant.as_str() {
        Some(text) => text.len() as u64,
        None if constant.as_object().is_none() => 1,
        None => constant.try_iter().into_iter().flatten().fold(32, |sum, item| {
            let held = constant.get_item(&item).ok().filter(|_| constant.kind() == ValueKind::Map);
            sum + 24 + bytes(&item) + held.as_ref().map_or(0, bytes)
        }),
    }
}
