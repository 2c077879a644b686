# The image of the reference processing service. A plain Dockerfile, so that every builder takes it.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS requirements
RUN python -m venv /opt/processing
COPY requirements/processing.txt /tmp/processing.txt
RUN /opt/processing/bin/python -m pip install --no-cache-dir --disable-pip-version-check --require-hashes \
    --only-binary :all: --requirement /tmp/processing.txt

FROM ${PYTHON_IMAGE}
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /app --shell /usr/sbin/nologin antenna
COPY --from=requirements /opt/processing /opt/processing
ENV PATH=/opt/processing/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
# Of Antenna it needs the wire format alone.
COPY ami/__init__.py ami/__init__.py
COPY ami/ml/__init__.py ami/ml/schemas.py ami/ml/
COPY processing_service processing_service
RUN chmod -R a+rX /app
USER antenna
EXPOSE 2000
ENTRYPOINT ["python", "-m", "processing_service"]
CMD ["serve", "--host", "0.0.0.0", "--port", "2000"]
