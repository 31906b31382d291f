//! The filters and tests of the template engine, each behind the meter.

use super::costs;
use super::meter::Meter;
use minijinja::value::{Rest, ValueOrKwargs};
use minijinja::{Environment, Error, State, Value, filters, tests};

/// Adds what minijinja brings along, but for what the template engine leaves to [`environment`](super::environment).
pub(super) fn add_to(environment: &mut Environment) {
    let of_minijinja: [(&'static str, Value); 48] = [
        ("abs", Value::from_function(filters::abs)),
        ("attr", Value::from_function(filters::attr)),
        ("batch", Value::from_function(filters::batch)),
        ("bool", Value::from_function(filters::bool)),
        ("capitalize", Value::from_function(filters::capitalize)),
        ("chain", Value::from_function(filters::chain)),
        ("count", Value::from_function(filters::length)),
        ("d", Value::from_function(filters::default)),
        ("default", Value::from_function(filters::default)),
        ("dictsort", Value::from_function(filters::dictsort)),
        ("e", Value::from_function(filters::escape)),
        ("escape", Value::from_function(filters::escape)),
        ("first", Value::from_function(filters::first)),
        ("float", Value::from_function(filters::float)),
        ("format", Value::from_function(filters::format)),
        ("groupby", Value::from_function(filters::groupby)),
        ("indent", Value::from_function(filters::indent)),
        ("int", Value::from_function(filters::int)),
        ("items", Value::from_function(filters::items)),
        ("join", Value::from_function(filters::join)),
        ("last", Value::from_function(filters::last)),
        ("length", Value::from_function(filters::length)),
        ("lines", Value::from_function(filters::lines)),
        ("list", Value::from_function(filters::list)),
        ("lower", Value::from_function(filters::lower)),
        ("map", Value::from_function(filters::map)),
        ("max", Value::from_function(filters::max)),
        ("min", Value::from_function(filters::min)),
        ("pprint", Value::from_function(filters::pprint)),
        ("reject", Value::from_function(filters::reject)),
        ("rejectattr", Value::from_function(filters::rejectattr)),
        ("replace", Value::from_function(filters::replace)),
        ("reverse", Value::from_function(filters::reverse)),
        ("round", Value::from_function(filters::round)),
        ("safe", Value::from_function(filters::safe)),
        ("select", Value::from_function(filters::select)),
        ("selectattr", Value::from_function(filters::selectattr)),
        ("slice", Value::from_function(filters::slice)),
        ("sort", Value::from_function(filters::sort)),
        ("split", Value::from_function(filters::split)),
        ("string", Value::from_function(super::environment::string)),
        ("sum", Value::from_function(filters::sum)),
        ("title", Value::from_function(filters::title)),
        ("tojson", Value::from_function(super::environment::tojson)),
        ("trim", Value::from_function(filters::trim)),
        ("unique", Value::from_function(filters::unique)),
        ("upper", Value::from_function(filters::upper)),
        ("zip", Value::from_function(filters::zip)),
    ];
    for (name, filter) in of_minijinja {
        environment.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| -> Result<Value, Error> {
            let args = args.into_values();
            let meter = Meter::of(state);
            let (work, bytes) = costs::of_filter(meter, name, &args)?;
            meter.make(work, bytes)?;
            let made = filter.call(state, &args)?;
            Meter::of(state).keep(made)
        });
    }
    add_tests(environment);
}

fn add_tests(environment: &mut Environment) {
    // Those that look at the kind of a value only, or at a number.
    environment.add_test("undefined", tests::is_undefined);
    environment.add_test("defined", tests::is_defined);
    environment.add_test("none", tests::is_none);
    environment.add_test("safe", tests::is_safe);
    environment.add_test("escaped", tests::is_safe);
    environment.add_test("boolean", tests::is_boolean);
    environment.add_test("odd", tests::is_odd);
    environment.add_test("even", tests::is_even);
    environment.add_test("divisibleby", tests::is_divisibleby);
    environment.add_test("number", tests::is_number);
    environment.add_test("integer", tests::is_integer);
    environment.add_test("int", tests::is_integer);
    environment.add_test("float", tests::is_float);
    environment.add_test("string", tests::is_string);
    environment.add_test("sequence", super::environment::is_sequence);
    environment.add_test("iterable", super::environment::is_iterable);
    environment.add_test("mapping", tests::is_mapping);
    environment.add_test("true", tests::is_true);
    environment.add_test("false", tests::is_false);
    environment.add_test("filter", tests::is_filter);
    environment.add_test("test", tests::is_test);
    let that_read: [(&[&'static str], Value); 11] = [
        (&["eq", "equalto", "=="], Value::from_function(tests::is_eq)),
        (&["ne", "!="], Value::from_function(tests::is_ne)),
        (&["lt", "lessthan", "<"], Value::from_function(tests::is_lt)),
        (&["le", "<="], Value::from_function(tests::is_le)),
        (&["gt", "greaterthan", ">"], Value::from_function(tests::is_gt)),
        (&["ge", ">="], Value::from_function(tests::is_ge)),
        (&["in"], Value::from_function(tests::is_in)),
        (&["startingwith"], Value::from_function(tests::is_startingwith)),
        (&["endingwith"], Value::from_function(tests::is_endingwith)),
        (&["lower"], Value::from_function(tests::is_lower)),
        (&["upper"], Value::from_function(tests::is_upper)),
    ];
    for (names, test) in that_read {
        for name in names {
            let test = test.clone();
            environment.add_test(*name, move |state: &mut State, args: Rest<ValueOrKwargs>| -> Result<bool, Error> {
                let args = args.into_values();
                let meter = Meter::of(state);
                let (work, bytes) = costs::of_test(meter, name, &args)?;
                meter.make(work, bytes)?;
                Ok(test.call(state, &args)?.is_true())
            });
        }
    }
    environment.add_test("sameas", |state: &mut State, value: &Value, other: &Value| -> Result<bool, Error> {
        let (work, bytes) = costs::of_comparison(Meter::of(state), value, other)?;
        Meter::of(state).make(work, bytes)?;
        Ok(tests::is_sameas(value, other))
    });
}
