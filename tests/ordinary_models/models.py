"""Ordinary models, one entry each: `training` trains them, and `write` makes the page of them.

Each is trained on some nodes and in one process, on the same global batches. To add one, write a function that builds
and compiles it with the Keras that it is given.
"""

from __future__ import annotations

from typing import Any

from tests.ordinary_models.declare import KERAS, TF_KERAS, kind, ordinary

CITIES = ("Basel", "Graz", "Lyon", "Oslo")
WORDS = ("ash", "birch", "cedar", "elm", "fir", "larch", "maple", "oak", "pine", "rowan")
VOCABULARY = 20
CLASSES = 4

BY_NODE = (
    "each node takes mean and variance over its part of a batch, and has moving statistics of its own, as under any "
    "strategy; the cell says so once. Write `BatchNormalization(synchronized=True)`"
)
ROWS_LOSS = (
    "it takes the mean over a node's part of a batch, and all nodes count the same, though some have fewer rows in an "
    'epoch\'s last step. Give the loss to `compile`, which counts rows, or write `remainder="drop"`'
)


def compiled(model: Any, optimizer: Any = "adam", loss: Any = "mse", **options: Any) -> Any:
    model.compile(optimizer, loss, **options)
    return model


def one_output(keras: Any, layers: list[Any], shape: tuple[int, ...] = (6,), **options: Any) -> Any:
    return compiled(keras.Sequential([keras.Input(shape), *layers, keras.layers.Dense(1)]), **options)


def classifier(keras: Any, layers: list[Any], shape: tuple[int, ...] = (6,), **options: Any) -> Any:
    last = keras.layers.Dense(CLASSES, activation="softmax")
    options = {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"], **options}
    return compiled(keras.Sequential([keras.Input(shape), *layers, last]), **options)


def binary(keras: Any, **options: Any) -> Any:
    hidden, last = keras.layers.Dense(6, activation="tanh"), keras.layers.Dense(1, activation="sigmoid")
    options = {"optimizer": keras.optimizers.SGD(0.3), "loss": "binary_crossentropy", **options}
    return compiled(keras.Sequential([keras.Input((6,)), hidden, last]), **options)


def plain(keras: Any, optimizer: Any, **options: Any) -> Any:
    """Return a small network for a number, to try an optimizer."""
    return one_output(keras, [keras.layers.Dense(8, activation="tanh")], optimizer=optimizer, **options)


# ---------------------------------------------------------------------------------------------------------------------
kind("Networks")


@ordinary("dense layers, classes, Adam", label="k", short=True)
def dense(keras):
    return classifier(keras, [keras.layers.Dense(16, activation="relu"), keras.layers.Dense(8, activation="tanh")])


@ordinary("vectors of Spark ML as features", features=["v"], label="z", short=True)
def spark_vectors(keras):
    return one_output(keras, [keras.layers.Dense(8, activation="tanh")], (3,))


@ordinary("numbers and strings as several inputs, `StringLookup`", features=["a", "b", "city"], label="y")
def string_lookup(keras):
    inputs = {
        "a": keras.Input((1,), name="a"),
        "b": keras.Input((1,), name="b"),
        "city": keras.Input((1,), name="city", dtype="string"),
    }
    city = keras.layers.StringLookup(vocabulary=list(CITIES), output_mode="one_hot")(inputs["city"])
    joined = keras.layers.Concatenate()([inputs["a"], inputs["b"], city])
    hidden = keras.layers.Dense(8, activation="relu")(joined)
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(hidden))
    return compiled(model, loss="binary_crossentropy", metrics=["accuracy"])


@ordinary(
    "text: `TextVectorization`, embedding, LSTM", features=["text"], label="y", change=lambda x, y, w: (column(x), y, w)
)
def text_lstm(keras):
    text = keras.Input((1,), name="text", dtype="string")
    tokens = keras.layers.TextVectorization(vocabulary=list(WORDS), output_sequence_length=6)(text)
    hidden = keras.layers.LSTM(6)(keras.layers.Embedding(len(WORDS) + 2, 4)(tokens))
    return compiled(keras.Model(text, keras.layers.Dense(1)(hidden)))


def column(x):
    import tensorflow as tf

    return tf.expand_dims(x, -1)


@ordinary("embeddings of tokens, averaged", features=["tokens"], label="k", short=True)
def embeddings(keras):
    layers = [keras.layers.Embedding(VOCABULARY, 6), keras.layers.GlobalAveragePooling1D()]
    return classifier(keras, layers, (8,))


@ordinary("attention between tokens", features=["tokens"], label="z")
def attention(keras):
    tokens = keras.Input((8,))
    embedded = keras.layers.Embedding(VOCABULARY, 8)(tokens)
    attended = keras.layers.MultiHeadAttention(2, 4)(embedded, embedded)
    pooled = keras.layers.GlobalAveragePooling1D()(keras.layers.LayerNormalization()(embedded + attended))
    return compiled(keras.Model(tokens, keras.layers.Dense(1)(pooled)))


@ordinary("a transformer with dropout", features=["tokens"], label="z", by_chance=True)
def transformer(keras):
    tokens = keras.Input((8,))
    embedded = keras.layers.Embedding(VOCABULARY, 8)(tokens)
    attended = keras.layers.MultiHeadAttention(2, 4, dropout=0.1)(embedded, embedded)
    normed = keras.layers.LayerNormalization()(embedded + attended)
    forward = keras.layers.Dropout(0.1)(keras.layers.Dense(8)(keras.layers.Dense(16, activation="gelu")(normed)))
    pooled = keras.layers.GlobalAveragePooling1D()(keras.layers.LayerNormalization()(normed + forward))
    return compiled(keras.Model(tokens, keras.layers.Dense(1)(pooled)))


@ordinary(
    "a class for each token, padding masked",
    features=["tokens"],
    label="tokens",
    not_exact={TF_KERAS: "each node takes the mean over the tokens that its own masks leave. Use Keras 3"},
    short=True,
)
def masked_tokens(keras):
    return tagger(keras, mask_zero=True, metrics=["accuracy"])


def tagger(keras, *, mask_zero, **options):
    """Return a model that tells something of each token."""
    layers = keras.layers
    stack = [keras.Input((8,)), layers.Embedding(VOCABULARY, 4, mask_zero=mask_zero)]
    stack += [layers.GRU(6, return_sequences=True), layers.Dense(VOCABULARY, activation="softmax")]
    return compiled(keras.Sequential(stack), loss="sparse_categorical_crossentropy", **options)


@ordinary(
    "`Conv2D` on the bytes of images",
    features=["image"],
    label="k",
    change=lambda x, y, w: (pixels(x), y, w),
    short=True,
)
def convolutions(keras):
    layers = keras.layers
    stack = [layers.Conv2D(4, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten()]
    return classifier(keras, stack, (8, 8, 1))


def pixels(x):
    import tensorflow as tf

    return tf.reshape(tf.cast(tf.io.decode_raw(x, tf.uint8), tf.float32) / 255.0, (-1, 8, 8, 1))


@ordinary("images made of images", features=["image"], label="k", change=lambda x, _, w: (pixels(x), pixels(x), w))
def images_of_images(keras):
    return compiled(keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Conv2D(1, 3, padding="same")]))


@ordinary("a series of numbers, GRU", features=["series"], label="z")
def gru(keras):
    return one_output(keras, [keras.layers.Reshape((4, 3)), keras.layers.GRU(6)], (12,))


@ordinary("`BatchNormalization(synchronized=True)`", label="z", short=True)
def synchronized_batch_normalization(keras):
    layers = [
        # The gradient of a bias would be nothing but noise here, which Adam makes large.
        keras.layers.Dense(8, use_bias=False),
        keras.layers.BatchNormalization(synchronized=True),
        keras.layers.Activation("relu"),
    ]
    return one_output(keras, layers)


@ordinary("`BatchNormalization`", label="z", not_exact=BY_NODE, short=True)
def plain_batch_normalization(keras):
    layers = [keras.layers.Dense(8), keras.layers.BatchNormalization(), keras.layers.Activation("relu")]
    return one_output(keras, layers)


@ordinary("L2 on weights", label="z")
def l2(keras):
    penalty = keras.regularizers.L2(0.01)
    return one_output(keras, [keras.layers.Dense(8, activation="tanh", kernel_regularizer=penalty)])


@ordinary("`activity_regularizer`", label="z")
def activity_regularizer(keras):
    penalty = keras.regularizers.L2(0.1)
    return one_output(keras, [keras.layers.Dense(8, activation="tanh", activity_regularizer=penalty)])


@ordinary("mixed precision, bfloat16", label="z", tolerance=1e-2)
def bfloat16(keras):
    return in_precision(keras, "mixed_bfloat16", lambda: plain(keras, keras.optimizers.Adam(0.01)))


@ordinary("mixed precision, float16, with the loss scaled", label="z", tolerance=1e-3)
def float16(keras):
    return in_precision(keras, "mixed_float16", lambda: plain(keras, keras.optimizers.Adam(0.01)))


def in_precision(keras, policy, build):
    """Build a model under a policy, and set back the policy of all."""
    keras.mixed_precision.set_global_policy(policy)
    try:
        return build()
    finally:
        keras.mixed_precision.set_global_policy("float32")


# ---------------------------------------------------------------------------------------------------------------------
kind("Inputs, outputs, steps of your own")


@ordinary("inputs as a tuple", features=["a", "b"], label="z", change=lambda x, y, w: ((x["a"], x["b"]), y, w))
def tuple_of_inputs(keras):
    inputs = [keras.Input((1,)), keras.Input((1,))]
    hidden = keras.layers.Dense(6, activation="tanh")(keras.layers.Concatenate()(inputs))
    return compiled(keras.Model(inputs, keras.layers.Dense(1)(hidden)))


def two_heads(keras):
    inputs = keras.Input((6,))
    hidden = keras.layers.Dense(8, activation="tanh")(inputs)
    price = keras.layers.Dense(1, name="price")(hidden)
    sold = keras.layers.Dense(1, activation="sigmoid", name="sold")(hidden)
    return inputs, price, sold


@ordinary('several outputs, `label=["z", "y"]`', label=["z", "y"], short=True)
def list_of_outputs(keras):
    inputs, price, sold = two_heads(keras)
    model = keras.Model(inputs, [price, sold])
    return compiled(model, loss=["mse", "binary_crossentropy"], metrics=[["mae"], ["accuracy"]])


@ordinary('outputs by name, `label={"price": "z", "sold": "y"}`', label={"price": "z", "sold": "y"}, short=True)
def dict_of_outputs(keras):
    inputs, price, sold = two_heads(keras)
    model = keras.Model(inputs, {"price": price, "sold": sold})
    losses = {"price": "mse", "sold": "binary_crossentropy"}
    metrics = {"price": ["mae"], "sold": [keras.metrics.AUC(name="auc")]}
    return compiled(model, loss=losses, loss_weights={"price": 0.3, "sold": 1.0}, metrics=metrics)


@ordinary(
    "several outputs, rows with weights of yours, weighted metrics", label={"sold": "y", "price": "z"}, weight="u"
)
def weighted_outputs(keras):
    inputs, price, sold = two_heads(keras)
    model = keras.Model(inputs, {"price": price, "sold": sold})
    losses = {"price": "mse", "sold": "binary_crossentropy"}
    return compiled(model, loss=losses, weighted_metrics={"price": ["mae"], "sold": ["accuracy"]})


@ordinary('an autoencoder, `label="x"`', label="x")
def autoencoder(keras):
    layers = keras.layers
    return compiled(keras.Sequential([keras.Input((6,)), layers.Dense(3, activation="tanh"), layers.Dense(6)]))


@ordinary("a `train_step` of your own", label="z")
def own_step(keras):
    import tensorflow as tf

    class Stepping(keras.Model):
        def train_step(self, data):
            x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = self.compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=weight)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return self.compute_metrics(x, y, y_pred, weight)

    inputs = keras.Input((6,))
    hidden = keras.layers.Dense(8, activation="tanh")(inputs)
    return compiled(Stepping(inputs, keras.layers.Dense(1)(hidden)), metrics=["mae"])


@ordinary("a model as a class, `add_loss` of weights", label="z")
def own_class(keras):
    import tensorflow as tf

    class Penalized(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden = keras.layers.Dense(8, activation="tanh")
            self.last = keras.layers.Dense(1)

        def call(self, inputs):
            hidden = self.hidden(inputs)
            self.add_loss(0.01 * tf.reduce_sum(tf.square(self.hidden.kernel)))
            return self.last(hidden)

    model = Penalized()
    model(tf.zeros((1, 6)))
    return compiled(model, metrics=["mae"])


@ordinary("`add_loss` of a mean over rows", label="z", not_exact=ROWS_LOSS)
def add_loss_of_rows(keras):
    import tensorflow as tf

    class Calm(keras.layers.Layer):
        def call(self, inputs):
            self.add_loss(0.3 * tf.reduce_mean(tf.square(inputs)))
            return inputs

    return one_output(keras, [keras.layers.Dense(8, activation="tanh"), Calm()])


def own_loop(keras, model, dataset, strategy, epochs):
    import tensorflow as tf

    loss_of = keras.losses.MeanSquaredError(reduction="none")

    @tf.function(reduce_retracing=True)
    def step(x, y, weight):
        with tf.GradientTape() as tape:
            losses = loss_of(tf.reshape(y, (-1, 1)), model(x, training=True))
            loss = tf.nn.compute_average_loss(losses, sample_weight=weight)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    shown = []
    for _ in range(epochs):
        for batch in strategy.experimental_distribute_dataset(dataset):
            losses = strategy.run(step, args=batch if len(batch) == 3 else (*batch, None))
            shown.append(float(strategy.reduce("SUM", losses, axis=None)))
    return {"loss": shown}


@ordinary("a loop of your own with `tf.nn.compute_average_loss`", label="z", weight="u", train=own_loop, short=True)
def loop(keras):
    return plain(keras, keras.optimizers.Adam(0.01))


# ---------------------------------------------------------------------------------------------------------------------
kind("Losses, weights and metrics")


@ordinary("losses of your own, a function and a class", label=["z", "y"])
def own_losses(keras):
    import tensorflow as tf

    class Pinball(keras.losses.Loss):
        def call(self, y_true, y_pred):
            error = tf.reshape(tf.cast(y_true, y_pred.dtype), (-1,)) - tf.squeeze(y_pred, -1)
            return tf.maximum(0.8 * error, -0.2 * error)

    def fourth_power(y_true, y_pred):
        return tf.reduce_mean((tf.reshape(tf.cast(y_true, y_pred.dtype), (-1, 1)) - y_pred) ** 4, axis=-1)

    inputs, price, sold = two_heads(keras)
    return compiled(keras.Model(inputs, [price, sold]), loss=[Pinball(), fourth_power])


@ordinary(
    '`reduction="sum"`',
    label="z",
    not_exact={TF_KERAS: "the rows of a step with fewer rows on some nodes count as those of a mean. Use Keras 3"},
    short=True,
)
def sum_of_losses(keras):
    return plain(keras, keras.optimizers.SGD(0.001), loss=keras.losses.MeanSquaredError(reduction="sum"))


@ordinary("AUC, precision, recall", label="y", short=True)
def auc(keras):
    metrics = keras.metrics
    return binary(keras, metrics=[metrics.AUC(name="auc"), metrics.Precision(name="p"), metrics.Recall(name="r")])


@ordinary("R²", label="z")
def r2(keras):
    return plain(keras, keras.optimizers.Adam(0.01), metrics=[keras.metrics.R2Score(name="r2")])


@ordinary("F1", label="k", change=lambda x, y, w: (x, one_hot(y), w))
def f1(keras):
    metrics = [keras.metrics.F1Score(average="macro", name="f1")]
    return classifier(keras, [keras.layers.Dense(8)], loss="categorical_crossentropy", metrics=metrics)


def one_hot(y):
    import tensorflow as tf

    return tf.one_hot(y, CLASSES)


@ordinary("accuracy among the first k, mean IoU", label="k")
def top_k(keras):
    metrics = keras.metrics
    seen = [
        metrics.SparseTopKCategoricalAccuracy(2, name="top"),
        metrics.MeanIoU(CLASSES, sparse_y_pred=False, name="iou"),
    ]
    return classifier(keras, [keras.layers.Dense(8)], metrics=seen)


@ordinary("rows with weights of yours, metrics with and without them", label="y", weight="u", short=True)
def row_weights(keras):
    return binary(keras, metrics=["accuracy"], weighted_metrics=[keras.metrics.AUC(name="auc"), "mae"])


@ordinary(
    "`fit(class_weight=…)`, validation data",
    label="y",
    fit={"class_weight": {0: 0.5, 1: 2.0}},
    validates=True,
    short=True,
)
def class_weight(keras):
    return binary(keras, metrics=["accuracy"], weighted_metrics=["mae"])


@ordinary(
    "`class_weight` of several classes, beside weights of yours",
    label="k",
    weight="u",
    fit={"class_weight": {0: 1, 1: 3, 2: 2, 3: 1}},
)
def class_weight_and_row_weights(keras):
    return classifier(keras, [keras.layers.Dense(8)], weighted_metrics=["accuracy"], metrics=[])


@ordinary("weights of classes by `map`", label="y", change=lambda x, y, w: (x, y, w * (1 + 2 * y)), weighs=True)
def class_weight_by_map(keras):
    return binary(keras, weighted_metrics=["accuracy"])


@ordinary(
    "weights of tokens by `map`",
    features=["tokens"],
    label="tokens",
    change=lambda x, y, w: (x, y, of_tokens(x, w)),
    weighs=True,
)
def token_weights(keras):
    return tagger(keras, mask_zero=False, weighted_metrics=["accuracy"])


def of_tokens(x, w):
    import tensorflow as tf

    return tf.expand_dims(w, -1) * tf.cast(x % 3, tf.float32)


@ordinary("`steps_per_epoch`, of rows that repeat", label="z", repeat=True, fit={"steps_per_epoch": 3})
def steps_per_epoch(keras):
    return plain(keras, keras.optimizers.Adam(0.01), metrics=["mae"])


@ordinary("`initial_epoch`", label="z", fit={"initial_epoch": 1})
def initial_epoch(keras):
    return plain(keras, keras.optimizers.Adam(0.01))


# ---------------------------------------------------------------------------------------------------------------------
kind("Optimizers")


@ordinary("Adam with a schedule and moving averages of weights", label="z", short=True)
def adam_with_ema(keras):
    schedule = keras.optimizers.schedules.ExponentialDecay(0.02, 3, 0.7)
    return plain(keras, keras.optimizers.Adam(schedule, use_ema=True, ema_momentum=0.9))


@ordinary("`ema_overwrite_frequency`", label="z")
def ema_overwrites(keras):
    return plain(keras, keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=5))


@ordinary("SGD with momentum and weight decay", label="z")
def weight_decay(keras):
    return plain(keras, keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True, weight_decay=0.01))


@ordinary("AdamW", label="z")
def adamw(keras):
    return plain(keras, keras.optimizers.AdamW(0.01))


@ordinary("RMSprop", label="z")
def rmsprop(keras):
    return plain(keras, keras.optimizers.RMSprop(0.01, momentum=0.5, centered=True))


@ordinary("Ftrl", label="z")
def ftrl(keras):
    return plain(keras, keras.optimizers.Ftrl(0.05, l1_regularization_strength=0.001))


@ordinary("Lion", label="z")
def lion(keras):
    return plain(keras, keras.optimizers.Lion(0.005))


@ordinary("Adafactor", label="z")
def adafactor(keras):
    return plain(keras, keras.optimizers.Adafactor(0.02))


@ordinary("Muon", label="z", keras=(KERAS,), needs="optimizers.Muon", since=(3, 13))
def muon(keras):
    return plain(keras, keras.optimizers.Muon(0.01))


@ordinary("the loss scaled by `LossScaleOptimizer`", label="z")
def loss_scale(keras):
    from_where = keras.optimizers if hasattr(keras.optimizers, "LossScaleOptimizer") else keras.mixed_precision
    return plain(keras, from_where.LossScaleOptimizer(keras.optimizers.SGD(0.1)))


@ordinary("`clipnorm`", label="z")
def clipnorm(keras):
    return plain(keras, keras.optimizers.SGD(0.1, clipnorm=0.1))


@ordinary("`global_clipnorm`", label="z")
def global_clipnorm(keras):
    return plain(keras, keras.optimizers.SGD(0.1, global_clipnorm=0.1))


@ordinary("`clipvalue`", label="z")
def clipvalue(keras):
    return plain(keras, keras.optimizers.SGD(0.1, clipvalue=0.02))


@ordinary("`gradient_accumulation_steps`", label="z", keras=(KERAS,), accumulates=2)
def gradient_accumulation(keras):
    return plain(keras, keras.optimizers.Adam(0.01, gradient_accumulation_steps=2))


@ordinary("`jit_compile=True`, taken as False in one sentence of the cell", label="z", short=True)
def jit_compile(keras):
    return plain(keras, keras.optimizers.Adam(0.01), jit_compile=True)
