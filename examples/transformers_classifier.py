"""A transformers sequence classifier with 20,000 labels: trained, saved, loaded, refused.

A tiny BERT with random weights, and texts that are made here: nothing is downloaded. Only 200
of the labels have texts in this small training set; the answer is sought among all 20,000.
"""

import tempfile

import torch
from torch import Tensor
from transformers import BertConfig, BertModel, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from labelmapping import LabelMapping, LabelMappingError, SimplexMapping
from labelmapping.nn import LabelMappingHead

N_LABELS, N_SEEN = 20_000, 200
torch.manual_seed(0)


class CodedClassifier(PreTrainedModel):
    """BERT, and on its pooled output a head over the code that the config has the recipe of."""

    config_class = BertConfig

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config)
        mapping = LabelMapping.from_config(config.mapping)
        self.classifier = LabelMappingHead(config.hidden_size, mapping, hidden=64)
        self.post_init()

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> SequenceClassifierOutput:
        features = self.bert(input_ids).pooler_output
        loss = None if labels is None else self.classifier(features, labels).loss
        # No row ever needs 20,000 logits.
        return SequenceClassifierOutput(loss=loss, hidden_states=features)

    @torch.no_grad()
    def predict(self, input_ids: Tensor) -> Tensor:
        return self.classifier.predict(self(input_ids).hidden_states)


config = BertConfig(
    vocab_size=1000,
    hidden_size=64,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=128,
)
config.mapping = SimplexMapping(N_LABELS, 4).to_config()
model = CodedClassifier(config)
size = sum(p.numel() for p in model.classifier.parameters())
print(f"classifier: {size:,} parameters, one-hot: {(64 + 1) * N_LABELS:,}")

# A text has six of its label's eight words, and six words of any kind.
labels = torch.randperm(N_LABELS)[:N_SEEN]
own_words = torch.randint(config.vocab_size, (N_SEEN, 8))


def texts_of(rows: Tensor) -> Tensor:
    words = own_words[rows].gather(1, torch.rand(len(rows), 8).argsort(dim=1))
    return torch.cat([words[:, :6], torch.randint(config.vocab_size, (len(rows), 6))], dim=1)


optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
losses = []
for _ in range(150):
    rows = torch.randint(N_SEEN, (64,))
    loss = model(texts_of(rows), labels=labels[rows]).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"loss: {losses[0]:.2f} in the first step, {losses[-1]:.2f} in the last")

with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    loaded = CodedClassifier.from_pretrained(folder).eval()
    config.mapping = SimplexMapping(N_LABELS, 4, points=[5, 6, 7, 8]).to_config()
    try:
        CodedClassifier.from_pretrained(folder, config=config)
    except LabelMappingError as error:
        print(f"refused: {error}")
texts = texts_of(torch.arange(N_SEEN).repeat(5))
found = loaded.predict(texts)
same = torch.equal(found, model.eval().predict(texts))
print("the loaded model gives", "the same answers" if same else "other answers")
right = (found == labels.repeat(5)).float().mean().item()
print(f"new texts: {right:.1%} right among {N_LABELS:,} labels")
