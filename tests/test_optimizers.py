import keras
import numpy as np
import pytest
import tensorflow as tf

from jobi_tf import LazyAdagrad, LazyAdam, RowAdagrad, optimizers
from jobi_tf.optimizers import rounded, sum_repeated


@pytest.fixture(params=["some rows", "one pass over all rows"])
def way(request, monkeypatch):
    """Both ways to update rows, whatever their share of the table."""
    monkeypatch.setattr(optimizers, "LARGE_SHARE", 2.0 if request.param == "some rows" else 0.0)


def table(rows=6, width=3):
    return keras.Variable(np.random.default_rng(0).normal(size=(rows, width)).astype(np.float32))


def built(variable, *args, kind=LazyAdam, **options):
    optimizer = kind(*args, **options)
    optimizer.build([variable])
    return optimizer


def slices(ids, seed=0, width=3):
    values = np.random.default_rng(seed).normal(size=(len(ids), width)).astype(np.float32)
    return tf.IndexedSlices(tf.constant(values), tf.constant(ids), tf.constant([6, width]))


def oracle(values, gradients, rate=0.1, b1=0.9, b2=0.999, eps=1e-7):
    """Adam of Kingma & Ba, with the bias correction taken into the step size; a gradient a step, NaN: not touched."""
    x, m, v = values.astype(np.float64), np.zeros_like(values), np.zeros_like(values)
    for t, g in enumerate(gradients, 1):
        on = ~np.isnan(g).any(1)
        m[on], v[on] = b1 * m[on] + (1 - b1) * g[on], b2 * v[on] + (1 - b2) * g[on] ** 2
        x[on] -= rate * np.sqrt(1 - b2**t) / (1 - b1**t) * m[on] / (np.sqrt(v[on]) + eps)
    return x


@pytest.mark.usefixtures("way")
def test_rows_without_an_entry_stay_bit_for_bit():
    variable = table()
    optimizer = built(variable, 0.1)
    optimizer.apply([slices([0, 1, 2, 3, 4, 5])], [variable])
    before = [x.numpy().copy() for x in (variable, *optimizer.variables[2:])]
    optimizer.apply([slices([4, 1, 4], seed=1)], [variable])
    after = [x.numpy() for x in (variable, *optimizer.variables[2:])]
    assert len(after) == 3
    for old, new in zip(before, after, strict=True):
        assert old[[0, 2, 3, 5]].tobytes() == new[[0, 2, 3, 5]].tobytes()
        assert (old[[1, 4]] != new[[1, 4]]).all()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("concurrent", [False, True])
def test_a_row_that_comes_and_goes_follows_the_oracle(concurrent):
    variable = table()
    expected, gradients = variable.numpy(), []
    optimizer = built(variable, 0.1)
    optimizer.concurrent = concurrent
    for step, ids in enumerate([[0, 1, 1], [2], [1, 5, 5, 5, 1], [0, 2], [3, 3]]):
        sparse = slices(ids, step)
        optimizer.apply([sparse], [variable])
        dense = np.full((6, 3), np.nan)
        for row in set(ids):
            dense[row] = sparse.values.numpy()[np.array(ids) == row].sum(0)
        gradients.append(dense)
    np.testing.assert_allclose(variable, oracle(expected, gradients), atol=1e-5)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("rows", [1, 3, 4, 5, 130, 2500])
def test_with_all_rows_touched_it_is_adam(rows):
    ours, theirs = table(rows), table(rows)
    start = ours.numpy()
    lazy, adam = built(ours, 0.05), keras.optimizers.Adam(0.05)
    adam.build([theirs])
    rng = np.random.default_rng(1)
    gradients = []
    for _ in range(6):
        gradient, order = rng.normal(size=(rows, 3)).astype(np.float32), rng.permutation(rows)
        lazy.apply([tf.IndexedSlices(tf.constant(gradient[order]), tf.constant(order), [rows, 3])], [ours])
        adam.apply([tf.constant(gradient)], [theirs])
        gradients.append(gradient)
    np.testing.assert_allclose(ours, oracle(start, gradients, rate=0.05), atol=1e-6)
    # Keras rounds 1 - beta_2 otherwise than the powers of beta_2, and so strays from Adam further than ours.
    np.testing.assert_allclose(ours, theirs, atol=4e-6)


def test_a_dense_gradient_is_handled_as_in_adam():
    ours, theirs = table(), table()
    lazy, adam = built(ours, 0.05), keras.optimizers.Adam(0.05)
    adam.build([theirs])
    for step in range(3):
        gradient = tf.fill([6, 3], 1.0 + step)
        lazy.apply([gradient], [ours]), adam.apply([gradient], [theirs])
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert not np.array_equal(ours, table())


def adagrad_oracle(values, gradients, rate=0.1, start=0.0, eps=1e-10):
    """Adagrad of Duchi et al.; a gradient a step."""
    x, total = values.astype(np.float64), np.full(values.shape, start)
    for g in gradients:
        total += g**2
        x -= rate * g / (np.sqrt(total) + eps)
    return x


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("start", [0.0, 0.5])
def test_adagrad_with_repeated_and_absent_rows_follows_the_oracle(start):
    variable = table()
    expected, gradients = variable.numpy(), []
    optimizer = built(variable, 0.1, start, kind=LazyAdagrad)
    for step, ids in enumerate([[0, 1, 1], [2], [1, 5, 5, 5, 1], [0, 2], [3, 3]]):
        sparse = slices(ids, step)
        optimizer.apply([sparse], [variable])
        dense = np.zeros((6, 3))
        np.add.at(dense, ids, sparse.values.numpy())
        gradients.append(dense)
    np.testing.assert_allclose(variable, adagrad_oracle(expected, gradients, start=start), atol=1e-5)
    assert variable.numpy()[4].tobytes() == expected[4].tobytes()


def test_adagrad_with_a_dense_gradient_follows_the_oracle():
    variable, rng = table(), np.random.default_rng(3)
    expected, gradients = variable.numpy(), [rng.normal(size=(6, 3)).astype(np.float32) for _ in range(4)]
    gradients[0][2] = 0  # no step from an accumulator that is still 0
    optimizer = built(variable, 0.2, kind=LazyAdagrad)
    for gradient in gradients:
        optimizer.apply([tf.constant(gradient)], [variable])
    np.testing.assert_allclose(variable, adagrad_oracle(expected, gradients, rate=0.2), atol=1e-5)


def row_adagrad_oracle(values, gradients, rate=0.1, start=0.0, eps=1e-10):
    """Adagrad with the mean square of each row; a gradient a step."""
    x, total = values.astype(np.float64), np.full(len(values), start)
    for g in gradients:
        total += (g**2).reshape(len(g), -1).mean(1)
        x -= rate * g / (np.sqrt(total).reshape([-1] + [1] * (g.ndim - 1)) + eps)
    return x, total


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("start", [0.0, 0.5])
@pytest.mark.parametrize("xla", [False, True])
def test_row_adagrad_with_repeated_and_absent_rows_follows_the_oracle(start, xla):
    variable = table()
    expected, gradients = variable.numpy(), []
    optimizer = built(variable, 0.1, start, kind=RowAdagrad)
    optimizer.xla = xla
    apply = tf.function(lambda sparse: optimizer.apply([sparse], [variable]), jit_compile=xla)
    for step, ids in enumerate([[0, 1, 1], [2], [5, 5, 5], [1, 3, 1], [0]]):  # XLA compiles each length by itself
        sparse = slices(ids, step)
        apply(sparse)
        dense = np.zeros((6, 3))
        np.add.at(dense, ids, sparse.values.numpy())
        gradients.append(dense)
    values, total = row_adagrad_oracle(expected, gradients, start=start)
    np.testing.assert_allclose(variable, values, atol=1e-5)
    np.testing.assert_allclose(optimizer.variables[2], total, rtol=1e-5)
    assert variable.numpy()[4].tobytes() == expected[4].tobytes()


@pytest.mark.parametrize("shape", [(), (4,), (6, 3), (4, 2, 3)])
def test_row_adagrad_with_a_dense_gradient_follows_the_oracle(shape):
    rng = np.random.default_rng(3)
    start = rng.normal(size=shape).astype(np.float32)
    gradients = [rng.normal(size=shape).astype(np.float32) for _ in range(4)]
    if shape:
        gradients[0][2] = 0  # no step from an accumulator that is still 0
    variable = keras.Variable(start)
    optimizer = built(variable, 0.2, kind=RowAdagrad)
    for gradient in gradients:
        optimizer.apply([tf.constant(gradient)], [variable])
    at_least_1d = [np.reshape(x, shape or (1,)) for x in (start, *gradients)]
    expected, _ = row_adagrad_oracle(at_least_1d[0], at_least_1d[1:], rate=0.2)
    np.testing.assert_allclose(np.reshape(variable, shape or (1,)), expected, atol=1e-5)
    assert optimizer.variables[2].shape == shape[:1]  # a number a row


@pytest.mark.parametrize("kind", [LazyAdam, LazyAdagrad, RowAdagrad])
def test_no_entries_change_nothing(kind):
    variable = table()
    optimizer = built(variable, 0.1, kind=kind)
    optimizer.apply([tf.IndexedSlices(tf.zeros([0, 3]), tf.zeros([0], tf.int32), tf.constant([6, 3]))], [variable])
    np.testing.assert_array_equal(variable, table())
    assert int(optimizer.iterations) == 1


def test_numbers_are_rounded_at_random_to_their_neighbours():
    rng = np.random.default_rng(0)
    values = np.repeat(np.float32([0.1003, -3.01, 7e-20, 0.5]), 20_000)
    noise = rng.normal(size=len(values)).astype(np.float32)
    found = rounded(tf.constant(values), tf.constant(noise)).numpy().astype(np.float32).reshape(4, -1)
    assert [len(np.unique(x)) for x in found] == [2, 2, 2, 1]  # 0.5 needs no rounding
    np.testing.assert_allclose(found.mean(1), values[::20_000], rtol=1e-4)


@pytest.mark.parametrize("kind", [LazyAdam, LazyAdagrad, RowAdagrad])
@pytest.mark.parametrize("xla", [False, True])
def test_a_table_of_16_bits_takes_the_same_steps_on_average(kind, xla):
    start = np.full((6, 4000), 0.375, np.float32)
    exact, short = keras.Variable(start), keras.Variable(start, dtype="bfloat16")
    first, second = built(exact, 1e-4, kind=kind), built(short, 1e-4, kind=kind)  # less than half a step of bfloat16
    first.xla = second.xla = xla
    apply = tf.function(
        lambda sparse: (first.apply([sparse], [exact]), second.apply([sparse], [short])), jit_compile=xla
    )
    rng = np.random.default_rng(1)
    for _ in range(30):
        gradient = 1 + 0.1 * rng.normal(size=(3, 4000)).astype(np.float32)
        apply(tf.IndexedSlices(tf.constant(gradient), tf.constant([4, 1, 4]), tf.constant([6, 4000])))
    moved, expected = (0.375 - x.numpy().astype(np.float32).mean(1) for x in (short, exact))
    np.testing.assert_allclose(moved, expected, atol=8e-5)
    assert (expected[[1, 4]] > 5e-4).all()


@pytest.mark.parametrize("kind", [LazyAdam, LazyAdagrad, RowAdagrad])
@pytest.mark.parametrize(
    "option",
    [
        {"amsgrad": True},
        {"weight_decay": 0.1},
        {"clipnorm": 1.0},
        {"clipvalue": 1.0},
        {"global_clipnorm": 1.0},
        {"use_ema": True},
        {"loss_scale_factor": 8.0},
        {"gradient_accumulation_steps": 2},
    ],
)
def test_options_that_act_on_whole_tables_are_refused(option, kind):
    with pytest.raises(ValueError, match=next(iter(option))):
        kind(**option)


@pytest.mark.parametrize("lookups", [1, 2])
def test_rows_that_a_graph_looks_up_once_or_twice_are_distinct(lookups):
    variable = table()

    @tf.function
    def gradient(ids):
        with tf.GradientTape() as tape:
            distinct, places = tf.unique(ids)
            rows = [tf.gather(variable.value, x) for x in (distinct, places)[:lookups]]
            total = sum(tf.reduce_sum(x) for x in rows)
        return sum_repeated(tape.gradient(total, variable.value))

    rows, sums = gradient(tf.constant([5, 5, 3, 5]))
    counts = np.bincount([5, 3] if lookups == 1 else [5, 3, 0, 0, 1, 0], minlength=6)
    assert len(set(rows.numpy())) == len(rows)
    assert (sums.numpy() == counts[rows.numpy()][:, None]).all()
    assert set(rows.numpy()) == set(np.flatnonzero(counts))


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_repeated_rows_of_any_type_and_shape_are_added_up(dtype, shape):
    values = np.arange(5 * int(np.prod(shape))).reshape(5, *shape)
    rows, sums = sum_repeated(tf.IndexedSlices(tf.cast(values, dtype), tf.constant([7, 2, 7, 0, 2])))
    assert sums.dtype == dtype
    assert rows.numpy().tolist() == [7, 2, 0]
    expected = [values[0] + values[2], values[1] + values[4], values[3]]
    np.testing.assert_array_equal(tf.cast(sums, tf.float64), np.array(expected, float))
